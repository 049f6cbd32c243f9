package skep.spark;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads one payload, once, from its first byte to its last. It takes less than JSON allows, and never more. When it is not certain of
 * something (an escaped key, a number of many digits, a time in an unusual spelling), it returns null, and the evaluator decides.
 */
final class MessageReader extends VariantCursor {
  private static final int FLOAT_DIGITS_MAX = 15;
  private static final double[] POWERS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15
  };

  private static final boolean[] HEX = new boolean[128];

  static {
    for (char one : "0123456789abcdefABCDEF".toCharArray()) {
      HEX[one] = true;
    }
  }

  private final MessageType type;

  MessageReader(MessageType type, byte[] text) {
    super(text);
    this.type = type;
  }

  InternalRow read() {
    MessageType.Field[] fields = type.fields;
    Object[] values = new Object[fields.length + 1];
    boolean[] seen = new boolean[fields.length];
    if (!object(fields, values, seen)) {
      return null;
    }
    skipBlanks();
    if (at != text.length || (wide >= 0 && !Utf8.isValid(text, wide))) {
      return null;
    }
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].required && !seen[i]) {
        return null;
      }
    }
    values[fields.length] = !escaped;
    return new GenericInternalRow(values);
  }

  private boolean object(MessageType.Field[] fields, Object[] values, boolean[] seen) {
    skipBlanks();
    if (!take('{')) {
      return false;
    }
    skipBlanks();
    if (take('}')) {
      return true;
    }
    int place = 0;
    while (true) {
      int from = at + 1;
      if (!plainString()) {
        return false;
      }
      int found = type.find(text, from, at - 1, place);
      skipBlanks();
      if (!take(':')) {
        return false;
      }
      skipBlanks();
      if (found < 0) {
        if (!type.open || !json(null, 0)) {
          return false;
        }
      } else {
        if (seen[found]) {
          return false;
        }
        seen[found] = true;
        place = found + 1;
        MessageType.Field field = fields[found];
        if (field.nullable && at < text.length && text[at] == 'n') {
          if (!word("null")) {
            return false;
          }
        } else {
          Object value = value(field.shape);
          if (value == UNSURE) {
            return false;
          }
          values[found] = value;
        }
      }
      skipBlanks();
      if (take('}')) {
        return true;
      }
      if (!take(',')) {
        return false;
      }
      skipBlanks();
    }
  }

  private Object value(MessageType.Shape shape) {
    switch (shape.kind) {
      case STRING:
        return string();
      case UUID:
        return uuid();
      case ENUM:
        return choice(shape.choices);
      case TIME:
        return time();
      case INT:
        return integer();
      case FLOAT:
        return floating();
      case BOOL:
        return bool();
      case LIST:
        return list(shape.element);
      case MAP:
        return map(shape.element);
      case TEXT:
        return jsonText();
      default:
        return variant();
    }
  }

  private Object list(MessageType.Shape element) {
    if (!take('[')) {
      return UNSURE;
    }
    skipBlanks();
    Object[] items = new Object[4];
    int count = 0;
    if (take(']')) {
      return new GenericArrayData(new Object[0]);
    }
    while (true) {
      Object item = value(element);
      if (item == UNSURE) {
        return UNSURE;
      }
      if (count == items.length) {
        items = Arrays.copyOf(items, count * 2);
      }
      items[count++] = item;
      skipBlanks();
      if (take(']')) {
        return new GenericArrayData(Arrays.copyOf(items, count));
      }
      if (!take(',')) {
        return UNSURE;
      }
      skipBlanks();
    }
  }

  private Object map(MessageType.Shape element) {
    if (!take('{')) {
      return UNSURE;
    }
    skipBlanks();
    // In the order of the message, as in the evaluator's maps.
    LinkedHashMap<Object, Object> items = new LinkedHashMap<>();
    boolean done = take('}');
    while (!done) {
      Object key = string();
      skipBlanks();
      if (key == UNSURE || !take(':')) {
        return UNSURE;
      }
      skipBlanks();
      Object item = value(element);
      if (item == UNSURE || items.put(key, item) != null) {
        return UNSURE;
      }
      skipBlanks();
      done = take('}');
      if (!done) {
        if (!take(',')) {
          return UNSURE;
        }
        skipBlanks();
      }
    }
    return new ArrayBasedMapData(
        new GenericArrayData(items.keySet().toArray()), new GenericArrayData(items.values().toArray()));
  }

  /** A value of any kind, as it is written in the message. */
  private Object jsonText() {
    int from = at;
    return json(null, 0) ? UTF8String.fromBytes(text, from, at - from) : UNSURE;
  }

  private Object string() {
    int from = at + 1;
    int end = endOfString();
    if (end < 0) {
      return UNSURE;
    }
    at = end + 1;
    if (!escaped || !hasEscape(from, end)) {
      return UTF8String.fromBytes(text, from, end - from);
    }
    byte[] plain = Escapes.removed(text, from, end);
    return plain == null ? UNSURE : UTF8String.fromBytes(plain);
  }

  /** A string without escapes, such as a key. */
  private boolean plainString() {
    int from = at + 1;
    boolean before = escaped;
    int end = endOfString();
    if (end < 0 || (escaped && (before ? hasEscape(from, end) : true))) {
      return false;
    }
    at = end + 1;
    return true;
  }

  private Object uuid() {
    int from = at + 1;
    if (!plainString() || at - 1 - from != 36) {
      return UNSURE;
    }
    for (int i = 0; i < 36; i++) {
      int one = text[from + i];
      boolean dash = i == 8 || i == 13 || i == 18 || i == 23;
      if (dash ? one != '-' : one < 0 || !HEX[one]) {
        return UNSURE;
      }
    }
    return UTF8String.fromBytes(text, from, 36);
  }

  private Object choice(byte[][] choices) {
    int from = at + 1;
    if (!plainString()) {
      return UNSURE;
    }
    int length = at - 1 - from;
    for (byte[] word : choices) {
      if (word.length == length && Arrays.equals(word, 0, length, text, from, from + length)) {
        return UTF8String.fromBytes(text, from, length);
      }
    }
    return UNSURE;
  }

  private Object time() {
    int from = at + 1;
    if (!plainString()) {
      return UNSURE;
    }
    long micros = Instants.micros(text, from, at - 1);
    return micros == Instants.NONE ? UNSURE : (Object) micros;
  }

  private Object integer() {
    int from = at;
    boolean negative = take('-');
    int first = at;
    long number = digits();
    int count = at - first;
    if (count == 0 || (text[first] == '0' && (count > 1 || negative)) || isNumberPart()) {
      return UNSURE;
    }
    if (count <= DIGITS_MAX) {
      return negative ? -number : number;
    }
    Long large = large(from);
    return large == null ? UNSURE : large;
  }

  private boolean isNumberPart() {
    return at < text.length && (text[at] == '.' || text[at] == 'e' || text[at] == 'E');
  }

  /** A float. With few digits it is the quotient of two exact floats, which rounds correctly; Java parses all others. */
  private Object floating() {
    int from = at;
    if (!skipNumber()) {
      return UNSURE;
    }
    int end = at;
    boolean negative = text[from] == '-';
    long number = 0;
    int digits = 0;
    int scale = -1;
    for (int i = negative ? from + 1 : from; i < end; i++) {
      int one = text[i];
      if (one == '.') {
        scale = digits;
      } else if (one < '0' || one > '9') {
        digits = FLOAT_DIGITS_MAX + 1;
        break;
      } else {
        number = number * 10 + (one - '0');
        digits++;
      }
    }
    if (digits > FLOAT_DIGITS_MAX) {
      return Double.parseDouble(new String(text, from, end - from, StandardCharsets.ISO_8859_1));
    }
    double value = scale < 0 ? number : number / POWERS[digits - scale];
    return negative ? -value : value;
  }
}
