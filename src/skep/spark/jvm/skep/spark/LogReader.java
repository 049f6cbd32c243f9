package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The messages of a portion, for as long as nothing is unusual. When a server does not answer, refuses, or has lost messages, the reader in
 * Python gets what is left: it tries again, asks other servers, and knows what to say. So Java knows nothing of all that.
 *
 * <p>Seqs may be missing because they were not asked for, or because retention took them. A log that does not begin after a gap has lost nothing. Java
 * looks at the first gap of a part, then every few seconds, and at the end. A gap that was not looked at is among what is left.
 */
final class LogReader implements PartitionReader<ColumnarBatch> {
  private static final CustomTaskMetric[] NONE = {};

  /** A request for each gap would keep queries of few messages waiting: each of their batches has one. */
  private static final long LOOK_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final LogServer server;
  private final StructType columns;
  private final Supplier<PartitionReader<InternalRow>> left;
  private final ArrayNode parts;
  private final Map<JsonNode, ObjectNode> gaps = new IdentityHashMap<>();
  private Iterator<JsonNode> nextParts;
  private ObjectNode part;
  private long nextLook;
  private Iterator<JsonNode> nextRequests = Collections.emptyIterator();
  private LogServer.Stream stream;
  private ColumnarBatch batch;
  private PartitionReader<InternalRow> python;

  /** {@code left} reads what the document says when it is called: each part from its {@code first} on. */
  LogReader(JsonNode document, StructType columns, Supplier<PartitionReader<InternalRow>> left) {
    server = new LogServer(document);
    this.columns = columns;
    this.left = left;
    parts = (ArrayNode) document.get("parts");
    nextParts = parts.iterator();
  }

  @Override
  public boolean next() throws IOException {
    batch = null;
    while (python == null && batch == null) {
      try {
        if (!advance()) {
          return false;
        }
      } catch (LogServer.Unusual | IOException unusual) {
        closeStream();
        addGaps();
        python = left.get();
      }
    }
    if (python == null) {
      return true;
    }
    boolean hasRow = python.next();
    batch = hasRow ? LogColumns.of(python.get(), columns) : null;
    return hasRow;
  }

  /** Come to the next batch, or to the end of a request, and say whether there may be more. */
  private boolean advance() throws IOException, LogServer.Unusual {
    if (stream != null) {
      if (stream.next()) {
        take(stream.batch());
        return true;
      }
      closeStream();
    }
    if (nextRequests.hasNext()) {
      stream = server.read(nextRequests.next().textValue());
    } else if (nextParts.hasNext()) {
      part = (ObjectNode) nextParts.next();
      nextRequests = part.get("requests").iterator();
      nextLook = System.nanoTime();
    } else {
      check(parts);
      return false;
    }
    return true;
  }

  private void take(VectorSchemaRoot found) throws IOException, LogServer.Unusual {
    int count = found.getRowCount();
    if (count == 0) {
      return;
    }
    BigIntVector seqs = (BigIntVector) found.getVector("seq");
    long first = seqs.get(0);
    if (first > part.get("first").longValue()) {
      gaps.computeIfAbsent(part, any -> part.deepCopy().put("last", first - 1));
      if (System.nanoTime() - nextLook >= 0) {
        check(List.of(part));
        nextLook = System.nanoTime() + LOOK_NANOS;
      }
    }
    batch = LogColumns.of(found, columns, part.get("queue").textValue());
    part.put("first", seqs.get(count - 1) + 1);
  }

  /** Unusual unless the logs are those that were planned, and begin neither after a gap nor after the first unread seq. */
  private void check(Iterable<JsonNode> read) throws IOException, LogServer.Unusual {
    Set<String> queues = new LinkedHashSet<>();
    read.forEach(one -> queues.add(one.get("queue").textValue()));
    Map<String, JsonNode> logs = server.bounds(List.copyOf(queues));
    for (JsonNode one : read) {
      JsonNode log = logs.get(one.get("queue").textValue());
      JsonNode missing = gaps.containsKey(one) ? gaps.get(one) : one;
      long first = missing.get("first").longValue();
      boolean isSame = log != null && log.get("log").longValue() == one.get("log").longValue();
      if (!isSame || (first <= missing.get("last").longValue() && log.get("firstSeq").longValue() > first)) {
        throw new LogServer.Unusual();
      }
      gaps.remove(one);
    }
  }

  /** Add the gaps before what was read to the parts that are left; the others begin where their part is to be read on. */
  private void addGaps() {
    gaps.forEach(
        (before, gap) -> {
          if (gap.get("first").longValue() < before.get("first").longValue()) {
            parts.add(gap);
          }
        });
  }

  private void closeStream() throws IOException {
    if (stream != null) {
      LogServer.Stream read = stream;
      stream = null;
      read.close();
    }
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return python == null ? NONE : python.currentMetricsValues();
  }

  @Override
  public void close() throws IOException {
    closeStream();
    if (python != null) {
      python.close();
    }
  }
}
