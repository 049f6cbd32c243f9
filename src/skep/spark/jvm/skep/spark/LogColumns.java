package skep.spark;

import com.fasterxml.jackson.core.type.TypeReference;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** A batch of the log as Spark reads it. Texts are not copied: they stay where Arrow has them until the next batch. */
final class LogColumns {
  private LogColumns() {}

  static ColumnarBatch of(VectorSchemaRoot batch, StructType columns, String queue) {
    ColumnVector[] found = new ColumnVector[columns.size()];
    Ids messageIds = null;
    for (int place = 0; place < found.length; place++) {
      StructField field = columns.fields()[place];
      FieldVector vector = batch.getVector(field.name());
      switch (field.name()) {
        case "queue" -> found[place] = new Same(UTF8String.fromString(queue));
        case "message_id" -> found[place] = messageIds = new Ids(vector, null);
        case "trace_id" -> found[place] = new Ids(vector, messageIds);
        case "payload" -> found[place] = new Payloads(vector);
        case "headers" -> found[place] = new Headers(field.dataType(), vector);
        default -> found[place] = new ArrowColumnVector(vector);
      }
    }
    return new ColumnarBatch(found, batch.getRowCount());
  }

  /** One row of the reader in Python as a batch. */
  static ColumnarBatch of(InternalRow row, StructType columns) {
    ColumnVector[] found = new ColumnVector[columns.size()];
    for (int place = 0; place < found.length; place++) {
      found[place] = new OfRow(columns.fields()[place].dataType(), row, place);
    }
    return new ColumnarBatch(found, 1);
  }

  /** One text in all rows. */
  private static final class Same extends Column {
    private final UTF8String text;

    Same(UTF8String text) {
      super(DataTypes.StringType);
      this.text = text;
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return text;
    }
  }

  /** Ids of 16 bytes as UUID text. A message's trace id is its own id as a rule, whose text is made once. */
  private static final class Ids extends Column {
    private static final int BYTES = 16;

    private final long start;
    private final Ids same;
    private int lastRow = -1;
    private UTF8String last;

    /** {@code same} are ids that may be the same; null when there are none. */
    Ids(FieldVector vector, Ids same) {
      super(DataTypes.StringType);
      start = vector.getDataBuffer().memoryAddress();
      this.same = same;
    }

    @Override
    public UTF8String getUTF8String(int row) {
      long from = start + (long) row * BYTES;
      long high = Platform.getLong(null, from);
      long low = Platform.getLong(null, from + Long.BYTES);
      if (same != null && same.isLast(row, high, low)) {
        return same.last;
      }
      last = UuidText.of(high, low);
      lastRow = row;
      return last;
    }

    private boolean isLast(int row, long high, long low) {
      long from = start + (long) row * BYTES;
      return row == lastRow && Platform.getLong(null, from) == high && Platform.getLong(null, from + Long.BYTES) == low;
    }
  }

  /** Bytes as text. Spark's strings are bytes, so a payload stays the same to the last byte. */
  private static final class Payloads extends Column {
    private final ArrowBuf ends;
    private final long start;

    Payloads(FieldVector vector) {
      super(DataTypes.StringType);
      ends = vector.getOffsetBuffer();
      start = vector.getDataBuffer().memoryAddress();
    }

    @Override
    public UTF8String getUTF8String(int row) {
      int first = ends.getInt((long) row * Integer.BYTES);
      return UTF8String.fromAddress(null, start + first, ends.getInt((row + 1L) * Integer.BYTES) - first);
    }
  }

  /** Headers, which arrive as JSON, as maps. Many messages have the same headers, so the last ones are kept. */
  private static final class Headers extends Column {
    private static final TypeReference<LinkedHashMap<String, String>> NAMES = new TypeReference<>() {};

    private final ArrowColumnVector texts;
    private UTF8String last;
    private ColumnarMap read;

    Headers(DataType type, FieldVector vector) {
      super(type);
      texts = new ArrowColumnVector(vector);
    }

    @Override
    public boolean isNullAt(int row) {
      return texts.isNullAt(row);
    }

    @Override
    public ColumnarMap getMap(int row) {
      UTF8String text = texts.getUTF8String(row);
      if (!text.equals(last)) {
        Map<String, String> headers = parsed(text);
        read = new ColumnarMap(new Texts(headers.keySet().toArray()), new Texts(headers.values().toArray()), 0, headers.size());
        last = text;
      }
      return read;
    }

    private static Map<String, String> parsed(UTF8String text) {
      try {
        return Python.JSON.readValue(text.getBytes(), NAMES);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  /** A value of a row. */
  private static final class OfRow extends Column {
    private final InternalRow row;
    private final int place;

    OfRow(DataType type, InternalRow row, int place) {
      super(type);
      this.row = row;
      this.place = place;
    }

    @Override
    public boolean isNullAt(int any) {
      return row.isNullAt(place);
    }

    @Override
    public long getLong(int any) {
      return row.getLong(place);
    }

    @Override
    public UTF8String getUTF8String(int any) {
      return row.getUTF8String(place);
    }

    @Override
    public ColumnarMap getMap(int any) {
      MapData map = row.getMap(place);
      Object[] keys = map.keyArray().toObjectArray(DataTypes.StringType);
      Object[] values = map.valueArray().toObjectArray(DataTypes.StringType);
      return new ColumnarMap(new Texts(keys), new Texts(values), 0, keys.length);
    }
  }

  /** Some texts. */
  private static final class Texts extends Column {
    private final UTF8String[] texts;

    /** Each a text of Spark's, or one of Java's. */
    Texts(Object[] given) {
      super(DataTypes.StringType);
      texts = new UTF8String[given.length];
      for (int place = 0; place < given.length; place++) {
        texts[place] = UTF8String.fromString(given[place].toString());
      }
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return texts[row];
    }
  }

  /** A column of one type of values. Nobody counts its nulls. */
  private abstract static class Column extends ColumnVector {
    Column(DataType type) {
      super(type);
    }

    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
      return true;
    }

    @Override
    public int numNulls() {
      return 0;
    }

    @Override
    public boolean isNullAt(int row) {
      return false;
    }

    @Override
    public boolean getBoolean(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public byte getByte(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public short getShort(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public int getInt(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public long getLong(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public float getFloat(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public double getDouble(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public ColumnarArray getArray(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public ColumnarMap getMap(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
      throw new UnsupportedOperationException();
    }

    @Override
    public UTF8String getUTF8String(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public byte[] getBinary(int row) {
      throw new UnsupportedOperationException();
    }

    @Override
    public ColumnVector getChild(int place) {
      throw new UnsupportedOperationException();
    }
  }
}
