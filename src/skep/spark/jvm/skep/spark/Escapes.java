package skep.spark;

import java.nio.charset.StandardCharsets;

/** Escapes in JSON strings. */
final class Escapes {
  private Escapes() {}

  /** The text with its escapes replaced, in UTF-8; null when an escape is unknown, or half of a surrogate pair. */
  static byte[] removed(byte[] text, int from, int to) {
    byte[] made = new byte[to - from];
    int length = 0;
    int i = from;
    while (i < to) {
      byte one = text[i++];
      if (one != '\\') {
        made[length++] = one;
        continue;
      }
      if (i >= to) {
        return null;
      }
      byte kind = text[i++];
      if (kind != 'u') {
        int plain = plain(kind);
        if (plain < 0) {
          return null;
        }
        made[length++] = (byte) plain;
        continue;
      }
      int unit = hex(text, i, to);
      i += 4;
      if (unit < 0 || Character.isLowSurrogate((char) unit)) {
        return null;
      }
      int point = unit;
      if (Character.isHighSurrogate((char) unit)) {
        int low = i + 1 < to && text[i] == '\\' && text[i + 1] == 'u' ? hex(text, i + 2, to) : -1;
        if (low < 0 || !Character.isLowSurrogate((char) low)) {
          return null;
        }
        point = Character.toCodePoint((char) unit, (char) low);
        i += 6;
      }
      byte[] encoded = new String(Character.toChars(point)).getBytes(StandardCharsets.UTF_8);
      System.arraycopy(encoded, 0, made, length, encoded.length);
      length += encoded.length;
    }
    return java.util.Arrays.copyOf(made, length);
  }

  private static int plain(byte kind) {
    switch (kind) {
      case '"':
      case '\\':
      case '/':
        return kind;
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      default:
        return -1;
    }
  }

  private static int hex(byte[] text, int from, int to) {
    if (from + 4 > to) {
      return -1;
    }
    int unit = 0;
    for (int i = from; i < from + 4; i++) {
      int digit = text[i] < 0 ? -1 : Character.digit((char) text[i], 16);
      if (digit < 0) {
        return -1;
      }
      unit = unit * 16 + digit;
    }
    return unit;
  }
}
