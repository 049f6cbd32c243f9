package skep.spark;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.types.VariantVal;

/** Reads any JSON as a variant. */
abstract class VariantCursor extends Cursor {
  private static final int DEPTH_MAX = 64;

  VariantCursor(byte[] text) {
    super(text);
  }

  Object variant() {
    VariantBuilder builder = new VariantBuilder(false);
    try {
      if (!json(builder, 0)) {
        return UNSURE;
      }
      Variant made = builder.result();
      return new VariantVal(made.getValue(), made.getMetadata());
    } catch (RuntimeException error) {
      return UNSURE; // a key that is there twice, or more than a variant can hold
    }
  }

  /** Appends any value, as Spark's parse_json does; without a builder it only skips the value. */
  boolean json(VariantBuilder builder, int depth) {
    if (at >= text.length || depth > DEPTH_MAX) {
      return false;
    }
    switch (text[at]) {
      case '"':
        return jsonString(builder);
      case '{':
        return jsonObject(builder, depth);
      case '[':
        return jsonArray(builder, depth);
      case 't':
      case 'f':
        Object truth = bool();
        if (builder != null && truth != UNSURE) {
          builder.appendBoolean((Boolean) truth);
        }
        return truth != UNSURE;
      case 'n':
        if (builder != null) {
          builder.appendNull();
        }
        return word("null");
      default:
        return jsonNumber(builder);
    }
  }

  private boolean jsonString(VariantBuilder builder) {
    String value = javaString(builder != null);
    if (builder != null && value != null) {
      builder.appendString(value);
    }
    return value != null;
  }

  /** The string that starts here; null when it is no string. If it is not wanted, it may be an empty one instead. */
  private String javaString(boolean wanted) {
    int from = at + 1;
    int end = endOfString();
    if (end < 0) {
      return null;
    }
    at = end + 1;
    if (escaped && hasEscape(from, end)) {
      byte[] plain = Escapes.removed(text, from, end);
      return plain == null ? null : new String(plain, StandardCharsets.UTF_8);
    }
    return wanted ? new String(text, from, end - from, StandardCharsets.UTF_8) : "";
  }

  private boolean jsonNumber(VariantBuilder builder) {
    int from = at;
    if (!skipNumber()) {
      return false;
    }
    if (builder == null) {
      return true;
    }
    String number = new String(text, from, at - from, StandardCharsets.ISO_8859_1);
    boolean whole = true;
    boolean exponent = false;
    for (int i = 0; i < number.length(); i++) {
      char one = number.charAt(i);
      whole &= one == '-' || (one >= '0' && one <= '9');
      exponent |= one == 'e' || one == 'E';
    }
    Long large = whole ? large(from) : null;
    if (large != null) {
      builder.appendLong(large);
    } else if (exponent) {
      builder.appendDouble(Double.parseDouble(number));
    } else {
      builder.appendDecimal(new BigDecimal(number));
    }
    return true;
  }

  private boolean jsonObject(VariantBuilder builder, int depth) {
    int start = builder == null ? 0 : builder.getWritePos();
    ArrayList<VariantBuilder.FieldEntry> members = builder == null ? null : new ArrayList<>();
    at++;
    skipBlanks();
    boolean done = take('}');
    while (!done) {
      String key = javaString(builder != null);
      skipBlanks();
      if (key == null || !take(':')) {
        return false;
      }
      skipBlanks();
      if (builder != null) {
        members.add(new VariantBuilder.FieldEntry(key, builder.addKey(key), builder.getWritePos() - start));
      }
      if (!json(builder, depth + 1)) {
        return false;
      }
      skipBlanks();
      done = take('}');
      if (!done && !take(',')) {
        return false;
      }
      if (!done) {
        skipBlanks();
      }
    }
    if (builder != null) {
      builder.finishWritingObject(start, members);
    }
    return true;
  }

  private boolean jsonArray(VariantBuilder builder, int depth) {
    int start = builder == null ? 0 : builder.getWritePos();
    ArrayList<Integer> places = builder == null ? null : new ArrayList<>();
    at++;
    skipBlanks();
    boolean done = take(']');
    while (!done) {
      if (builder != null) {
        places.add(builder.getWritePos() - start);
      }
      if (!json(builder, depth + 1)) {
        return false;
      }
      skipBlanks();
      done = take(']');
      if (!done && !take(',')) {
        return false;
      }
      if (!done) {
        skipBlanks();
      }
    }
    if (builder != null) {
      builder.finishWritingArray(start, places);
    }
    return true;
  }
}
