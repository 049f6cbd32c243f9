package skep.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A read of logs that Python has planned. Its tasks read from the server in Java, without a Python process, through which all rows would
 * have to go.
 */
record LogBatch(Batch python, StructType columns) implements Batch {
  /** The function of Python that makes a portion of its document, as `skep.spark.handed` has it. */
  private static final String MODULE = "skep.spark.handed";

  private static final String FUNCTION = "portion_of";

  static {
    Unpickler.registerConstructor(MODULE, FUNCTION, arguments -> new Document((String) arguments[0]));
  }

  private record Document(String text) {}

  /** The input of a task. */
  private record Portion(int index, String document) implements InputPartition {
    private static final long serialVersionUID = 1L;

    /** Not the document, which has the token. */
    @Override
    public String toString() {
      return "Portion(" + index + ")";
    }
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return Arrays.stream(python.planInputPartitions())
        .map(one -> portion((PythonInputPartition) one))
        .toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Readers(python.createReaderFactory(), columns);
  }

  private static Portion portion(PythonInputPartition python) {
    try {
      Document document = (Document) new Unpickler().loads(python.pickedPartition());
      return new Portion(python.index(), document.text());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private record Readers(PartitionReaderFactory python, StructType columns) implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      Portion portion = (Portion) partition;
      JsonNode document = Python.parsed(portion.document());
      return new LogReader(document, columns, () -> python.createReader(left(portion.index(), document)));
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("a log is read as columns");
    }
  }

  /** What is left of a portion, as Python takes it: a call of the function with the document (pickle's opcodes). */
  private static PythonInputPartition left(int index, JsonNode document) {
    byte[] text = document.toString().getBytes(StandardCharsets.UTF_8);
    ByteArrayOutputStream pickled = new ByteArrayOutputStream();
    pickled.writeBytes(("\u0080\u0002c" + MODULE + "\n" + FUNCTION + "\nX").getBytes(StandardCharsets.ISO_8859_1));
    pickled.writeBytes(ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN).putInt(text.length).array());
    pickled.writeBytes(text);
    pickled.writeBytes("\u0085R.".getBytes(StandardCharsets.ISO_8859_1));
    return new PythonInputPartition(index, pickled.toByteArray());
  }
}
