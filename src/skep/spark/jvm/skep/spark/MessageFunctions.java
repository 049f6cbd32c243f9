package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A catalog of the functions that read messages. A function's name says in JSON what it reads, so that none has to be registered. */
public final class MessageFunctions implements FunctionCatalog {
  private static final ObjectMapper JSON = new ObjectMapper();
  private String name;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listFunctions(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  public UnboundFunction loadFunction(Identifier identifier) {
    String text = identifier.name();
    JsonNode document;
    try {
      document = JSON.readTree(text);
    } catch (IOException error) {
      throw new UncheckedIOException("no name of a function: " + text, error);
    }
    if (document.has("text")) {
      return new VariantFunction.Text(document.get("text"));
    }
    if (document.has("has")) {
      return new VariantFunction.Has(document.get("has"));
    }
    return new MessageFunction(text, MessageType.of(document));
  }
}
