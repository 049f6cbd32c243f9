package skep.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * What must hold of a row, by column: its text is one of some, or its number (or time in microseconds) lies between two bounds.
 *
 * A row that satisfies the predicates satisfies these conditions, but not the other way round: Spark evaluates all predicates again.
 * So a predicate that is not understood is no condition.
 */
final class Conditions {
  private static final int MOST_VALUES_SHOWN = 5;

  /** The most bytes of the values of one column in a request. More values are left to Spark. */
  private static final int MOST_URL_BYTES = 4_096;

  private final Map<String, Set<String>> sets = new TreeMap<>();
  private final Map<String, Range> ranges = new TreeMap<>();

  private Conditions() {}

  /** Both bounds belong to the range. The least and the greatest number stand for no bound. */
  private record Range(long low, long high, boolean isTime) {
    Range and(Range other) {
      return new Range(Math.max(low, other.low), Math.min(high, other.high), isTime);
    }

    Range or(Range other) {
      return new Range(Math.min(low, other.low), Math.max(high, other.high), isTime);
    }

    String shown(long bound) {
      return isTime ? Instant.EPOCH.plus(bound, ChronoUnit.MICROS).toString() : Long.toString(bound);
    }
  }

  /** The conditions that follow from all predicates together, for columns that can be filtered. */
  static Conditions of(Collection<Predicate> predicates, UnaryOperator<String> filters) {
    Conditions all = new Conditions();
    for (Predicate predicate : predicates) {
      all = all.and(of(predicate));
    }
    all.sets.keySet().removeIf(column -> !"set".equals(filters.apply(column)));
    all.sets.values().removeIf(values -> values.stream().mapToInt(Conditions::sizeInUrl).sum() > MOST_URL_BYTES);
    all.ranges.keySet().removeIf(column -> !"range".equals(filters.apply(column)));
    return all;
  }

  void writeTo(ObjectNode pushDown) {
    sets.forEach(
        (column, values) -> {
          ArrayNode some = pushDown.withObject("/sets").putArray(column);
          values.forEach(some::add);
        });
    ranges.forEach(
        (column, range) -> {
          ArrayNode bounds = pushDown.withObject("/ranges").putArray(column);
          bounds.add(range.low == Long.MIN_VALUE ? null : (Long) range.low);
          bounds.add(range.high == Long.MAX_VALUE ? null : (Long) range.high);
        });
  }

  /** The conditions as SQL, for EXPLAIN. */
  List<String> shown() {
    List<String> shown = new ArrayList<>();
    sets.forEach(
        (column, values) -> {
          String some = values.stream().limit(MOST_VALUES_SHOWN).map(one -> "'" + one + "'").collect(Collectors.joining(", "));
          int more = values.size() - MOST_VALUES_SHOWN;
          shown.add(column + " IN (" + some + (more > 0 ? ", and " + more + " more)" : ")"));
        });
    ranges.forEach(
        (column, range) -> {
          if (range.low != Long.MIN_VALUE) {
            shown.add(column + " >= " + range.shown(range.low));
          }
          if (range.high != Long.MAX_VALUE) {
            shown.add(column + " <= " + range.shown(range.high));
          }
        });
    return shown;
  }

  private static Conditions of(Expression expression) {
    Expression[] children = expression.children();
    if (!(expression instanceof Predicate predicate) || children.length == 0) {
      return new Conditions();
    }
    switch (predicate.name()) {
      case "AND":
        return of(children[0]).and(of(children[1]));
      case "OR":
        return of(children[0]).or(of(children[1]));
      case "IN":
        return in(children);
      case "=", "<=>", "<", "<=", ">", ">=":
        return children[0] instanceof Literal
            ? compared(children[1], turned(predicate.name()), children[0])
            : compared(children[0], predicate.name(), children[1]);
      default:
        return new Conditions();
    }
  }

  private Conditions and(Conditions other) {
    Conditions both = new Conditions();
    both.sets.putAll(sets);
    other.sets.forEach(
        (column, values) ->
            both.sets.merge(column, values, (a, b) -> a.stream().filter(b::contains).collect(Collectors.toCollection(LinkedHashSet::new))));
    both.ranges.putAll(ranges);
    other.ranges.forEach((column, range) -> both.ranges.merge(column, range, Range::and));
    return both;
  }

  /** What holds in either case: only of columns that both cases speak of. */
  private Conditions or(Conditions other) {
    Conditions either = new Conditions();
    sets.forEach(
        (column, values) -> {
          if (other.sets.containsKey(column)) {
            Set<String> all = new LinkedHashSet<>(values);
            all.addAll(other.sets.get(column));
            either.sets.put(column, all);
          }
        });
    ranges.forEach(
        (column, range) -> {
          if (other.ranges.containsKey(column)) {
            either.ranges.put(column, range.or(other.ranges.get(column)));
          }
        });
    return either;
  }

  /** One of some values. A null among them is equal to nothing. */
  private static Conditions in(Expression[] children) {
    Conditions all = new Conditions();
    for (int i = 1; i < children.length; i++) {
      if (!(children[i] instanceof Literal<?> literal)) {
        return new Conditions();
      }
      if (literal.value() == null) {
        continue;
      }
      Conditions one = compared(children[0], "=", literal);
      if (one.sets.isEmpty() && one.ranges.isEmpty()) {
        return one;
      }
      one.sets.forEach((column, values) -> all.sets.computeIfAbsent(column, any -> new LinkedHashSet<>()).addAll(values));
      one.ranges.forEach((column, range) -> all.ranges.merge(column, range, Range::or));
    }
    return all;
  }

  private static Conditions compared(Expression left, String operator, Expression right) {
    Conditions found = new Conditions();
    if (!(left instanceof NamedReference column) || !(right instanceof Literal<?> literal)) {
      return found;
    }
    DataType type = literal.dataType();
    if (column.fieldNames().length != 1 || literal.value() == null) {
      return found;
    }
    String name = column.fieldNames()[0];
    boolean isTime = DataTypes.TimestampType.equals(type);
    // A text with a collation has another type: other texts may be equal to it.
    if (DataTypes.StringType.equals(type) && (operator.equals("=") || operator.equals("<=>"))) {
      found.sets.put(name, Set.of(literal.value().toString()));
    } else if (isTime || DataTypes.LongType.equals(type)) {
      found.ranges.put(name, range(operator, (Long) literal.value(), isTime));
    }
    return found;
  }

  private static Range range(String operator, long value, boolean isTime) {
    switch (operator) {
      case "<":
        return new Range(Long.MIN_VALUE, value == Long.MIN_VALUE ? value : value - 1, isTime);
      case "<=":
        return new Range(Long.MIN_VALUE, value, isTime);
      case ">":
        return new Range(value == Long.MAX_VALUE ? value : value + 1, Long.MAX_VALUE, isTime);
      case ">=":
        return new Range(value, Long.MAX_VALUE, isTime);
      default:
        return new Range(value, value, isTime);
    }
  }

  private static int sizeInUrl(String value) {
    return URLEncoder.encode(value, StandardCharsets.UTF_8).length();
  }

  private static String turned(String operator) {
    return switch (operator) {
      case "<" -> ">";
      case "<=" -> ">=";
      case ">" -> "<";
      case ">=" -> "<=";
      default -> operator;
    };
  }
}
