package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Closeable;
import java.io.EOFException;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;

/** The requests of a task to the server of its portion. Each is made once: whatever goes wrong is {@link Unusual}, or an exception of Java's. */
final class LogServer {
  private static final String ARROW = "application/vnd.apache.arrow.stream";
  private static final String JSON = "application/json";
  private static final int OK = 200;

  /** The most queues in one request, as in `skep.spark.link`. */
  private static final int QUEUES_AT_ONCE = 500;

  private static final BufferAllocator MEMORY = new RootAllocator();

  private final String bounds;
  private final Map<String, String> headers;
  private final int silenceMillis;

  LogServer(JsonNode document) {
    bounds = document.get("bounds").textValue();
    headers = Python.texts(document.get("headers"));
    silenceMillis = document.get("silence_millis").intValue();
  }

  /** The server did not do as asked. */
  static final class Unusual extends Exception {
    private static final long serialVersionUID = 1L;
  }

  /** The messages of a range, while they come. */
  Stream read(String url) throws IOException, Unusual {
    HttpURLConnection connection = opened(url, ARROW);
    return new Stream(connection, answer(connection));
  }

  /** The bounds of some logs by queue, without those that do not exist. */
  Map<String, JsonNode> bounds(List<String> queues) throws IOException, Unusual {
    Map<String, JsonNode> found = new HashMap<>();
    for (int first = 0; first < queues.size(); first += QUEUES_AT_ONCE) {
      for (JsonNode log : boundsOf(queues.subList(first, Math.min(queues.size(), first + QUEUES_AT_ONCE)))) {
        found.put(log.get("queue").textValue(), log);
      }
    }
    return found;
  }

  private JsonNode boundsOf(List<String> queues) throws IOException, Unusual {
    HttpURLConnection connection = opened(bounds, JSON);
    connection.setRequestMethod("POST");
    connection.setRequestProperty("Content-Type", JSON);
    connection.setDoOutput(true);
    try (OutputStream body = connection.getOutputStream()) {
      Python.JSON.writeValue(body, Map.of("queues", queues));
    }
    try (InputStream body = answer(connection)) {
      return Python.JSON.readTree(body).get("logs");
    }
  }

  private HttpURLConnection opened(String url, String accepted) throws IOException {
    HttpURLConnection connection = (HttpURLConnection) URI.create(url).toURL().openConnection(Proxy.NO_PROXY);
    headers.forEach(connection::setRequestProperty);
    connection.setRequestProperty("Accept", accepted);
    connection.setInstanceFollowRedirects(false);
    connection.setConnectTimeout(silenceMillis);
    connection.setReadTimeout(silenceMillis);
    return connection;
  }

  private static InputStream answer(HttpURLConnection connection) throws IOException, Unusual {
    if (connection.getResponseCode() != OK) {
      connection.disconnect();
      throw new Unusual();
    }
    return connection.getInputStream();
  }

  /** Knows whether what was read ends as a whole stream does. Arrow also takes one for whole that was cut between two batches. */
  private static final class Ending extends FilterInputStream {
    private static final long MARK = 0xffffffff00000000L;
    private long last;

    Ending(InputStream body) {
      super(body);
    }

    boolean isThere() {
      return last == MARK;
    }

    @Override
    public int read() throws IOException {
      int one = super.read();
      if (one >= 0) {
        last = last << Byte.SIZE | one;
      }
      return one;
    }

    @Override
    public int read(byte[] into, int from, int most) throws IOException {
      int count = super.read(into, from, most);
      for (int place = from + Math.max(0, count - Long.BYTES); place < from + count; place++) {
        last = last << Byte.SIZE | into[place] & 0xff;
      }
      return count;
    }
  }

  /** An answer in Arrow, batch by batch. A batch takes the place of the one before. */
  static final class Stream implements Closeable {
    private final HttpURLConnection connection;
    private final BufferAllocator memory = MEMORY.newChildAllocator("skep", 0, Long.MAX_VALUE);
    private final Ending body;
    private final ArrowStreamReader reader;
    private boolean hasEnded;

    private Stream(HttpURLConnection connection, InputStream body) {
      this.connection = connection;
      this.body = new Ending(body);
      reader = new ArrowStreamReader(this.body, memory);
    }

    boolean next() throws IOException {
      hasEnded = !reader.loadNextBatch();
      if (hasEnded && !body.isThere()) {
        throw new EOFException("the answer ended too early");
      }
      return !hasEnded;
    }

    VectorSchemaRoot batch() throws IOException {
      return reader.getVectorSchemaRoot();
    }

    /** Lets the connection be used again, if all of the answer was read. */
    @Override
    public void close() throws IOException {
      if (!hasEnded) {
        connection.disconnect();
      }
      reader.close();
      memory.close();
    }
  }
}
