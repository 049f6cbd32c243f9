package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The queues of a tenant as tables: `spark.sql.catalog.skep=skep.spark.Catalog`, with the connection as `spark.sql.catalog.skep.url` and
 * so on. All queues are in the catalog itself, and those with a namespace also in that one. Nothing is kept here: each statement asks
 * the server.
 */
public final class Catalog implements TableCatalog, SupportsNamespaces {
  private static final String SERVER = "server";
  private static final List<String> SERVER_TABLES = List.of("leases", "dead_letters", "queues", "groups");
  private static final String NOT_FOUND = "QUEUE_NOT_FOUND";

  private static final Set<String> CONNECTION = Set.of("url", "token", "tenant", "retryseconds");

  private String name;
  private Map<String, String> connection;
  private Map<String, String> reading;

  /** All options are for reads of queues; a write and a table of the server take those of the connection. */
  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    reading = Map.copyOf(options.asCaseSensitiveMap());
    connection = new HashMap<>(reading);
    connection.keySet().removeIf(option -> !CONNECTION.contains(option.toLowerCase(Locale.ROOT)));
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    List<String> names = new ArrayList<>();
    if (isServer(namespace)) {
      names.addAll(SERVER_TABLES);
    }
    for (JsonNode queue : queues()) {
      if (namespace.length == 0 || isIn(queue, namespace)) {
        names.add(queue.get("name").textValue());
      }
    }
    if (names.isEmpty() && namespace.length > 0) {
      throw new NoSuchNamespaceException(namespace);
    }
    return names.stream().map(one -> Identifier.of(namespace, one)).toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier wanted) throws NoSuchTableException {
    return table(wanted, Map.of());
  }

  /** `VERSION AS OF`: the log up to a seq. */
  @Override
  public Table loadTable(Identifier wanted, String version) throws NoSuchTableException {
    long seq;
    try {
      seq = Long.parseLong(version);
    } catch (NumberFormatException error) {
      throw new IllegalArgumentException("the version of a queue is a seq, such as VERSION AS OF 1200, not " + version);
    }
    return table(wanted, Map.of("endingOffsets", Python.JSON.createObjectNode().put(wanted.name(), seq).toString()));
  }

  /** `TIMESTAMP AS OF`: the messages that were there at a time, in microseconds. */
  @Override
  public Table loadTable(Identifier wanted, long timestamp) throws NoSuchTableException {
    return table(wanted, Map.of("endingTimestamp", Instant.EPOCH.plus(timestamp + 1, ChronoUnit.MICROS).toString()));
  }

  @Override
  public boolean tableExists(Identifier wanted) {
    try {
      return loadTable(wanted) != null;
    } catch (AnalysisException error) {
      return false;
    }
  }

  private Table table(Identifier wanted, Map<String, String> range) throws NoSuchTableException {
    String table = wanted.name();
    String place = wanted.namespace().length == 0 ? name : name + "." + String.join(".", wanted.namespace());
    String shown = place + "." + table;
    if (isServer(wanted.namespace()) && SERVER_TABLES.contains(table)) {
      if (!range.isEmpty()) {
        throw new IllegalArgumentException(shown + " is as it is now: only queues have versions");
      }
      return CatalogTable.ofServer(shown, connection, table);
    }
    if (wanted.namespace().length > 0 && !isThere(wanted)) {
      throw missing(place, table).<RuntimeException>undeclared();
    }
    try {
      return CatalogTable.ofQueue(shown, connection, table, reading, range);
    } catch (Python.SkepError error) {
      throw error.code.equals(NOT_FOUND) ? missing(place, table).<RuntimeException>undeclared() : error;
    }
  }

  /** Whether a queue is in the namespace; Spark's exception when there is no such namespace, since the name may mean something else. */
  private boolean isThere(Identifier wanted) throws NoSuchTableException {
    List<String> names = new ArrayList<>();
    for (JsonNode queue : queues()) {
      if (isIn(queue, wanted.namespace())) {
        names.add(queue.get("name").textValue());
      }
    }
    if (names.isEmpty() && !isServer(wanted.namespace())) {
      throw new NoSuchTableException(wanted);
    }
    return names.contains(wanted.name());
  }

  private NoQueueException missing(String place, String table) {
    String cure = "there is no queue " + table + " in " + place + ". SHOW TABLES IN " + place + " lists what is there; skep queue create "
        + table + " makes a queue. The tables of the server are in " + name + "." + SERVER + ": " + String.join(", ", SERVER_TABLES) + ".";
    return new NoQueueException(place + "." + table, cure);
  }

  private JsonNode queues() {
    Map<String, String> options = new HashMap<>(connection);
    options.put("table", "queues");
    return Python.ask("queues", options).document().get("queues");
  }

  private static boolean isServer(String[] namespace) {
    return namespace.length == 1 && namespace[0].equals(SERVER);
  }

  private static boolean isIn(JsonNode queue, String[] namespace) {
    return namespace.length == 1 && namespace[0].equals(queue.get("namespace").textValue());
  }

  @Override
  public String[][] listNamespaces() {
    TreeSet<String> names = new TreeSet<>(List.of(SERVER));
    for (JsonNode queue : queues()) {
      if (!queue.get("namespace").isNull()) {
        names.add(queue.get("namespace").textValue());
      }
    }
    return names.stream().map(one -> new String[] {one}).toArray(String[][]::new);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) {
      return listNamespaces();
    }
    loadNamespaceMetadata(namespace);
    return new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length > 0 && !isServer(namespace)) {
      listTables(namespace);
    }
    return Map.of();
  }

  @Override
  public Table createTable(Identifier wanted, TableInfo table) {
    throw refused("make a queue with: skep queue create " + wanted.name() + ". Then INSERT INTO writes to it");
  }

  @Override
  public Table alterTable(Identifier wanted, TableChange... changes) {
    throw refused("change the settings of a queue with: skep queue update " + wanted.name());
  }

  @Override
  public boolean dropTable(Identifier wanted) {
    throw refused("delete a queue, with all its messages, with: skep queue delete " + wanted.name());
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw refused("a queue keeps its name; make another one with: skep queue create " + to.name());
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    throw refused("a namespace is there when a queue has it: skep queue update QUEUE --namespace " + String.join(".", namespace));
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw refused("a namespace has no properties. To move a queue: skep queue update QUEUE --namespace NAME");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw refused("a namespace is gone when no queue has it: skep queue update QUEUE --reset namespace");
  }

  private static UnsupportedOperationException refused(String cure) {
    return new UnsupportedOperationException("SQL reads queues and writes to them, and does not manage them; " + cure);
  }
}
