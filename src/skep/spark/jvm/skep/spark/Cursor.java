package skep.spark;

import java.nio.charset.StandardCharsets;

/** A position in a JSON text, and the steps that move it on. They take only what is certain to be JSON. */
abstract class Cursor {
  static final Object UNSURE = new Object();
  static final int DIGITS_MAX = 18;
  private static final int NUMBER_MAX = 25;

  final byte[] text;
  int at;
  /** Whether a string so far had a backslash. */
  boolean escaped;
  /** The start of the first string with characters beyond ASCII; -1 when there is none. */
  int wide = -1;

  Cursor(byte[] text) {
    this.text = text;
  }

  void skipBlanks() {
    while (at < text.length) {
      int one = text[at];
      if (one != ' ' && one != '\n' && one != '\r' && one != '\t') {
        return;
      }
      at++;
    }
  }

  boolean take(char one) {
    if (at < text.length && text[at] == one) {
      at++;
      return true;
    }
    return false;
  }

  boolean word(String word) {
    if (text.length - at < word.length()) {
      return false;
    }
    for (int i = 0; i < word.length(); i++) {
      if (text[at + i] != word.charAt(i)) {
        return false;
      }
    }
    at += word.length();
    return true;
  }

  Object bool() {
    if (at < text.length && text[at] == 't') {
      return word("true") ? Boolean.TRUE : UNSURE;
    }
    return word("false") ? Boolean.FALSE : UNSURE;
  }

  long digits() {
    long number = 0;
    while (at < text.length && text[at] >= '0' && text[at] <= '9') {
      number = number * 10 + (text[at++] - '0');
    }
    return number;
  }

  /** The whole number from {@code from} to here; null when it does not fit into 64 bits. */
  Long large(int from) {
    try {
      return Long.valueOf(new String(text, from, at - from, StandardCharsets.ISO_8859_1));
    } catch (NumberFormatException error) {
      return null;
    }
  }

  boolean skipNumber() {
    int from = at;
    take('-');
    int first = at;
    digits();
    if (at == first || (text[first] == '0' && at - first > 1)) {
      return false;
    }
    if (take('.')) {
      int fraction = at;
      digits();
      if (at == fraction) {
        return false;
      }
    }
    if (at < text.length && (text[at] == 'e' || text[at] == 'E')) {
      at++;
      if (!take('+')) {
        take('-');
      }
      int exponent = at;
      digits();
      // An exponent of three digits may be too large for a float.
      if (at == exponent || at - exponent > 2) {
        return false;
      }
    }
    return at - from <= NUMBER_MAX;
  }

  boolean hasEscape(int from, int to) {
    for (int i = from; i < to; i++) {
      if (text[i] == '\\') {
        return true;
      }
    }
    return false;
  }

  /** The index of the quote that ends the string which starts here; -1 when it is no string. Escapes are skipped, not checked. */
  int endOfString() {
    final byte[] bytes = text;
    if (at >= bytes.length || bytes[at] != '"') {
      return -1;
    }
    int high = 0;
    for (int i = at + 1; i < bytes.length; i++) {
      int one = bytes[i];
      if (one == '"') {
        if (high < 0 && wide < 0) {
          wide = at;
        }
        return i;
      }
      high |= one;
      if (one == '\\') {
        escaped = true;
        i++;
      } else if (one >= 0 && one < ' ') {
        return -1;
      }
    }
    return -1;
  }
}
