package skep.spark;

/** Checks that bytes are UTF-8: no overlong sequences, no surrogates, nothing beyond U+10FFFF. */
final class Utf8 {
  private Utf8() {}

  static boolean isValid(byte[] text, int from) {
    int i = from;
    while (i < text.length) {
      int one = text[i++];
      if (one >= 0) {
        continue; // ASCII, as most of the text is
      }
      int lead = one & 0xff;
      int more = lead < 0xc2 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : -1;
      if (more < 0 || i + more > text.length) {
        return false;
      }
      int second = text[i] & 0xff;
      if ((lead == 0xe0 && second < 0xa0)
          || (lead == 0xed && second > 0x9f)
          || (lead == 0xf0 && second < 0x90)
          || (lead == 0xf4 && second > 0x8f)) {
        return false;
      }
      for (; more > 0; more--) {
        if ((text[i++] & 0xc0) != 0x80) {
          return false;
        }
      }
    }
    return true;
  }
}
