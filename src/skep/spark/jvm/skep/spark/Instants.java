package skep.spark;

/** Times in their usual spelling, like {@code 2026-03-01T10:20:30.25Z}: up to six digits of a fraction, and Z or an offset. */
final class Instants {
  static final long NONE = Long.MIN_VALUE;
  private static final long SECOND = 1_000_000L;
  private static final int[] DAYS = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  private static final long FIRST = -719_162L * 86_400L * SECOND;
  private static final long LAST = 2_932_897L * 86_400L * SECOND - 1;

  private Instants() {}

  /** Microseconds since 1970; {@link #NONE} for another spelling, or a time that does not exist or is not in the years 1 to 9999. */
  static long micros(byte[] text, int from, int to) {
    if (to - from < 20
        || text[from + 4] != '-'
        || text[from + 7] != '-'
        || text[from + 10] != 'T'
        || text[from + 13] != ':'
        || text[from + 16] != ':') {
      return NONE;
    }
    int high = two(text, from);
    int low = two(text, from + 2);
    int month = two(text, from + 5);
    int day = two(text, from + 8);
    int hour = two(text, from + 11);
    int minute = two(text, from + 14);
    int second = two(text, from + 17);
    int year = high * 100 + low;
    if (high < 0 || low < 0 || year < 1 || month < 1 || month > 12 || day < 1 || day > daysOf(year, month)) {
      return NONE;
    }
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
      return NONE;
    }
    int i = from + 19;
    long fraction = 0;
    if (text[i] == '.') {
      int digits = 0;
      for (i++; i < to && text[i] >= '0' && text[i] <= '9'; i++) {
        fraction = fraction * 10 + (text[i] - '0');
        digits++;
      }
      if (digits == 0 || digits > 6) {
        return NONE;
      }
      for (; digits < 6; digits++) {
        fraction *= 10;
      }
    }
    int offset = offset(text, i, to);
    if (offset == Integer.MIN_VALUE) {
      return NONE;
    }
    long seconds = daysSince1970(year, month, day) * 86_400L + hour * 3600L + minute * 60L + second - offset * 60L;
    long micros = seconds * SECOND + fraction;
    return micros < FIRST || micros > LAST ? NONE : micros;
  }

  /** Minutes east of Greenwich; {@link Integer#MIN_VALUE} when there is something else. */
  private static int offset(byte[] text, int at, int to) {
    if (to - at == 1 && text[at] == 'Z') {
      return 0;
    }
    if (to - at != 6 || (text[at] != '+' && text[at] != '-') || text[at + 3] != ':') {
      return Integer.MIN_VALUE;
    }
    int hours = two(text, at + 1);
    int minutes = two(text, at + 4);
    if (hours < 0 || hours > 17 || minutes < 0 || minutes > 59) {
      return Integer.MIN_VALUE;
    }
    int offset = hours * 60 + minutes;
    return text[at] == '-' ? -offset : offset;
  }

  private static int two(byte[] text, int at) {
    int one = text[at] - '0';
    int other = text[at + 1] - '0';
    return one < 0 || one > 9 || other < 0 || other > 9 ? -1 : one * 10 + other;
  }

  private static int daysOf(int year, int month) {
    boolean leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return month == 2 && leap ? 29 : DAYS[month - 1];
  }

  /** Years start in March here, so that the leap day comes last. */
  private static long daysSince1970(int year, int month, int day) {
    int shifted = month > 2 ? year : year - 1;
    int era = Math.floorDiv(shifted, 400);
    int ofEra = shifted - era * 400;
    int ofYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    long days = ofEra * 365L + ofEra / 4 - ofEra / 100 + ofYear;
    return era * 146_097L + days - 719_468L;
  }
}
