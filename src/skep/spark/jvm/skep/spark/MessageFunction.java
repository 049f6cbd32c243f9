package skep.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads a payload as a struct; null when it is not certain that it fits. The last field says whether no string has an escape. */
public final class MessageFunction implements UnboundFunction, ScalarFunction<InternalRow> {
  private static final long serialVersionUID = 1L;
  static final String PLAIN = "skep:plain";

  private final String text;
  private final MessageType type;

  MessageFunction(String text, MessageType type) {
    this.text = text;
    this.type = type;
  }

  @Override
  public BoundFunction bind(StructType input) {
    if (input.length() != 1 || !DataTypes.StringType.equals(input.apply(0).dataType())) {
      throw new UnsupportedOperationException("a message is read from one string");
    }
    return this;
  }

  @Override
  public String description() {
    return name() + ": a payload as a struct, null where it is not certain that it fits";
  }

  @Override
  public String name() {
    return "skep_message";
  }

  @Override
  public String canonicalName() {
    return "skep.message:" + text;
  }

  @Override
  public DataType[] inputTypes() {
    return new DataType[] {DataTypes.StringType};
  }

  @Override
  public DataType resultType() {
    return type.struct();
  }

  /** Spark calls a method of this name from the code that it generates, without a row in between. */
  public InternalRow invoke(UTF8String payload) {
    return payload == null ? null : new MessageReader(type, payload.getBytes()).read();
  }
}
