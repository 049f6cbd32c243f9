package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * The stream in Python, and how far it is behind the logs: Spark asks no source in Python for metrics. Their names are those of Spark's
 * Kafka source. They follow from offsets that Spark has anyway, so they cost no request.
 */
final class MeteredStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final MicroBatchStream stream;
  private final SupportsTriggerAvailableNow limited;
  private Offset latest;

  MeteredStream(MicroBatchStream stream) {
    this.stream = stream;
    limited = (SupportsTriggerAvailableNow) stream;
  }

  /** Over all queues, how many messages of each come after the offset. */
  @Override
  public Map<String, String> metrics(Optional<Offset> consumed) {
    if (latest == null || consumed.isEmpty()) {
      return Map.of();
    }
    JsonNode done = Python.parsed(consumed.get().json());
    long queues = 0;
    long least = Long.MAX_VALUE;
    long most = 0;
    double total = 0;
    for (Map.Entry<String, JsonNode> end : Python.parsed(latest.json()).properties()) {
      // A queue that was made anew may be shorter than what was read of the one before.
      long behind = Math.max(0, end.getValue().longValue() - done.path(end.getKey()).longValue());
      least = Math.min(least, behind);
      most = Math.max(most, behind);
      total += behind;
      queues++;
    }
    return queues == 0
        ? Map.of()
        : Map.of(
            "minOffsetsBehindLatest", Long.toString(least),
            "maxOffsetsBehindLatest", Long.toString(most),
            "avgOffsetsBehindLatest", Double.toString(total / queues));
  }

  @Override
  public Offset reportLatestOffset() {
    latest = limited.reportLatestOffset();
    return latest;
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return limited.latestOffset(start, limit);
  }

  @Override
  public Offset latestOffset() {
    return stream.latestOffset();
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return limited.getDefaultReadLimit();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    limited.prepareForTriggerAvailableNow();
  }

  @Override
  public Offset initialOffset() {
    return stream.initialOffset();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return stream.deserializeOffset(json);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return stream.planInputPartitions(start, end);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return stream.createReaderFactory();
  }

  @Override
  public void commit(Offset end) {
    stream.commit(end);
  }

  @Override
  public void stop() {
    stream.stop();
  }

  /** What Spark shows as the description of the source. */
  @Override
  public String toString() {
    return Python.SOURCE;
  }
}
