#include "native/print/print_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/hash.h"
#include "native/place/phases.h"

namespace ahead::native {
namespace {

/// How a type of numbers is written.
struct TypeWords {
  const char* vector;
  const char* scalar;
  const char* set;      ///< all lanes the same
  const char* dtype;    ///< of row buffers and sums
  const char* convert;  ///< from others
  int64_t bytes;
};

const TypeWords& words_for(Type type) {
  static constexpr TypeWords table[] = {
      {"F", "float", "set_f", "f32", "to_f", 4}, {"D", "double", "set_d", "f64", "to_d", 8},
      {"L", "long", "set_l", "i64", "to_l", 8},  {"I", "int", "set_i", "i32", "to_i", 4},
      {"I", "int", "set_i", "i32", "to_i", 4},
  };
  return table[static_cast<size_t>(type)];
}

/// How a dtype is written in memory.
struct MemoryWords {
  const char* scalar;
  const char* suffix;  ///< of loads and stores
};

MemoryWords memory_words_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return {"float", "f32"};
    case at::kDouble:
      return {"double", "f64"};
    case at::kLong:
      return {"long", "i64"};
    case at::kInt:
      return {"int", "i32"};
    case at::kBFloat16:
      return {"unsigned short", "bf16"};
    case at::kHalf:
      return {"unsigned short", "f16"};
    default:
      return {"bool", "bool"};
  }
}

std::string name_of(const char* kind, int64_t index) {
  return kind + std::to_string(index);
}

/// Whether a sum has an array of numbers, to which rows add.
bool has_array(const Kernel::Sum& sum) {
  return sum.kind == Kernel::Sum::Kind::EachColumn || sum.kind == Kernel::Sum::Kind::EachElement;
}

/// A body for whole vectors of columns, and once more for those that are left; only what the number
/// of columns leaves something to do for, as compilers take long for bodies. Sums of short ones are
/// taken in several parts, since each addition has to wait for the one before.
constexpr const char* for_columns = R"(template <class Body>
INLINE void for_columns(long n, Body body) {
  long i = 0;
)";
constexpr const char* for_columns_by_4 = R"(template <class Body>
INLINE void for_columns_by_4(long n, Body body) {
  long i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) {
    body(i, Full{}, 0);
    body(i + LANES, Full{}, 1);
    body(i + 2 * LANES, Full{}, 2);
    body(i + 3 * LANES, Full{}, 3);
  }
)";
constexpr const char* full_vectors = "  for (; i + LANES <= n; i += LANES) body(i, Full{}, 0);\n";
constexpr const char* rest_of_columns = "  if (i < n) body(i, Tail{(int)(n - i)}, 0);\n";
/// Bodies that cost more are not taken in parts.
constexpr int short_body = 24;

/// Prints one kernel.
class Printer {
 public:
  Printer(const Kernel& kernel, int vector_bytes) : kernel_(kernel), phases_(divide(kernel)) {
    const bool is_wide =
        std::any_of(kernel.terms.begin(), kernel.terms.end(),
                    [](const Term& term) { return words_for(term.type).bytes == 8; });
    printed_.lanes = vector_bytes / (is_wide ? 8 : 4);
  }

  PrintedKernel run() {
    add_sizes();
    print_function();
    const std::string key = body_ + columns_loop() + std::to_string(printed_.lanes);
    char hash[17];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_bytes(key)));
    printed_.name = kernel_.name + "_" + hash;
    const std::string function =
        (uses_parts_ ? for_columns_by_4 + columns_loop() : "") + for_columns + columns_loop() +
        "extern \"C\" void " + printed_.name +
        "(char* const* b, const long* n, const double* d, long row, long rows_end,\n"
        "    long first, long columns, char* sums, char* scratch) {\n" +
        body_ + "}\n";
    printed_.text = function;
    return std::move(printed_);
  }

 private:
  const Term& term(TermId id) const { return kernel_.terms[static_cast<size_t>(id)]; }
  const Buffer& buffer(int32_t id) const { return kernel_.buffers[static_cast<size_t>(id)]; }
  static std::string t(TermId id) { return name_of("t", id); }

  void line(const std::string& text) {
    body_.append(static_cast<size_t>(indent_) * 2, ' ') += text + "\n";
  }
  void open(const std::string& text) {
    line(text + " {");
    ++indent_;
  }
  void close(const char* text = "}") {
    --indent_;
    line(text);
  }

  int64_t inner_columns() const { return kernel_.columns.empty() ? 1 : kernel_.columns.back(); }
  /// The end of a loop over columns.
  std::string columns_loop() const {
    const bool has_full = inner_columns() >= printed_.lanes;
    const bool has_rest = inner_columns() % printed_.lanes != 0;
    return std::string(has_full ? full_vectors : "") + (has_rest ? rest_of_columns : "") + "}\n";
  }

  /// The position among all columns.
  const char* column() const { return kernel_.columns.size() > 1 ? "at + i" : "i"; }
  std::string size(size_t index) const { return "n[" + std::to_string(index) + "]"; }
  size_t stride_index(size_t buffer, size_t axis) const {
    const size_t axes = kernel_.rows.size() + kernel_.columns.size();
    return axes * (1 + buffer) + axis;
  }

  void add_sizes();
  void print_function();
  void print_row_pointers();
  void print_phase(const Phase& phase, int32_t number);
  void print_pass(const Phase& phase, int32_t number);
  void print_cells(const Phase& phase, int32_t number);
  void print_term(TermId id, int32_t pass);
  std::string expression(TermId id, int32_t pass);
  std::string arithmetic(const Term& term);
  std::string load(const Term& term);
  std::string load_at(const Term& term);
  std::string row_start(const Term& load) const;
  std::string load_word(const Term& load) const;
  std::string number(const Term& term);
  std::string convert(const Term& term);
  std::string condition(TermId id, Type type) const {
    return words_for(type).bytes == 8 ? "mask_l(" + t(id) + ")" : t(id);
  }
  std::string comparison(const Term& term, const char* sign) const {
    return "mask_i(" + t(term.operands[0]) + " " + sign + " " + t(term.operands[1]) + ")";
  }
  std::string identity(const Term& term) const;
  std::string element(size_t sum) const;
  void print_reduction_end(TermId id, bool in_parts);
  bool is_taken_in_parts(const Phase& phase) const;
  void store(const std::string& value, int32_t target, bool in_pass);

  const Kernel& kernel_;
  const Phases phases_;
  PrintedKernel printed_;
  std::string body_;
  int indent_ = 1;
  bool uses_parts_ = false;
  size_t first_sum_ = 0;      ///< in sizes
  size_t row_buffer_at_ = 0;  ///< in sizes
};

void Printer::add_sizes() {
  std::vector<int64_t>& sizes = printed_.sizes;
  const auto append = [&](const Sizes& more) {
    sizes.insert(sizes.end(), more.begin(), more.end());
  };
  append(kernel_.rows);
  append(kernel_.columns);
  for (const Buffer& buffer : kernel_.buffers) {
    append(buffer.rows);
    append(buffer.columns);
  }
  first_sum_ = sizes.size();
  const int64_t columns = kernel_.num_columns();
  for (const Kernel::Sum& sum : kernel_.sums) {
    sizes.push_back(printed_.sum_bytes);
    printed_.sum_bytes +=
        (kernel_.length(sum) * words_for(term(sum.term).type).bytes + 63) / 64 * 64;
  }
  row_buffer_at_ = sizes.size();
  // Room for whole vectors; not a power of two, at which buffers would share lines of the cache.
  const int64_t row_bytes = (columns * 8 + 63) / 64 * 64 + 64;
  sizes.push_back(row_bytes);
  for (const Buffer& buffer : kernel_.buffers) sizes.push_back(buffer.picked);
  printed_.scratch_bytes = row_bytes * phases_.num_row_buffers;
  const bool has_row_work = std::any_of(kernel_.terms.begin(), kernel_.terms.end(),
                                        [](const Term& term) { return is_row_reduction(term.op); });
  printed_.may_divide_columns =
      kernel_.columns.size() == 1 && !has_row_work && phases_.num_row_buffers == 0 &&
      std::all_of(kernel_.sums.begin(), kernel_.sums.end(),
                  [](const Kernel::Sum& sum) { return sum.kind == Kernel::Sum::Kind::All; });
}

void Printer::print_function() {
  for (const TermId id : phases_.constants) print_term(id, 0);
  for (size_t i = 0; i < kernel_.sums.size(); ++i) {
    const Kernel::Sum& sum = kernel_.sums[i];
    const TypeWords& type = words_for(term(sum.term).type);
    if (has_array(sum)) {
      line(std::string(type.scalar) + "* const a" + std::to_string(i) + " = (" + type.scalar +
           "*)(sums + " + size(first_sum_ + i) + ");");
    } else {
      line(std::string(type.vector) + " a" + std::to_string(i) + " = " + type.set + "(0);");
    }
  }
  open("for (; row < rows_end; ++row)");
  print_row_pointers();
  if (kernel_.columns.size() > 1) line("long at = 0;  // among all columns");
  for (size_t i = 0; i < phases_.phases.size(); ++i)
    print_phase(phases_.phases[i], static_cast<int32_t>(i));
  close();
  for (size_t i = 0; i < kernel_.sums.size(); ++i) {
    const Kernel::Sum& sum = kernel_.sums[i];
    if (has_array(sum)) continue;
    const std::string name = name_of("a", static_cast<int64_t>(i));
    const bool is_all = sum.kind == Kernel::Sum::Kind::All;
    line("*(" + std::string(words_for(term(sum.term).type).scalar) + "*)(sums + " +
         size(first_sum_ + i) + ") += " + (is_all ? "sum_lanes(" + name + ")" : name + "[0]") +
         ";");
  }
}

void Printer::print_row_pointers() {
  const size_t num_rows = kernel_.rows.size();
  if (num_rows > 1) line("long rest = row;");
  for (size_t axis = num_rows; axis-- > 0;) {
    const std::string name = name_of("r", static_cast<int64_t>(axis));
    if (axis == 0) {
      line("const long " + name + " = " + (num_rows > 1 ? "rest" : "row") + ";");
    } else {
      line("const long " + name + " = rest % " + size(axis) + "; rest /= " + size(axis) + ";");
    }
  }
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& buffer = kernel_.buffers[i];
    const MemoryWords memory = memory_words_of(buffer.dtype);
    std::string place = std::string("(") + memory.scalar + "*)b[" + std::to_string(i) + "]";
    for (size_t axis = 0; axis < num_rows; ++axis) {
      if (buffer.rows[axis] == 0) continue;
      place += " + r" + std::to_string(axis) + " * " + size(stride_index(i, axis));
    }
    if (printed_.may_divide_columns && buffer.columns[0] != 0) {
      place +=
          buffer.columns[0] == 1 ? " + first" : " + first * " + size(stride_index(i, num_rows));
    }
    line(std::string(memory.scalar) + "* const p" + std::to_string(i) + " = " + place + ";");
  }
}

void Printer::print_phase(const Phase& phase, int32_t number) {
  for (const TermId id : phase.row_terms) print_term(id, number);
  for (const size_t i : phase.row_stores)
    store(t(kernel_.stores[i].term), kernel_.stores[i].buffer, false);
  for (const size_t i : phase.row_sums) {
    const std::string name = name_of("a", static_cast<int64_t>(i));
    line(name + " = " + name + " + " + t(kernel_.sums[i].term) + ";");
  }
  if (phase.has_pass()) print_pass(phase, number);
}

void Printer::print_pass(const Phase& phase, int32_t number) {
  const bool in_parts = is_taken_in_parts(phase);
  uses_parts_ |= in_parts;
  for (const TermId id : phase.reductions) {
    const TypeWords& type = words_for(term(id).type);
    const std::string first = std::string(type.set) + "(" + identity(term(id)) + ")";
    line(std::string(type.vector) + " s" + std::to_string(id) + (in_parts ? "[4] = {" : "[1] = {") +
         first + (in_parts ? ", " + first + ", " + first + ", " + first : "") + "};");
  }
  const size_t outer = kernel_.columns.empty() ? 0 : kernel_.columns.size() - 1;
  if (outer != 0) line("at = 0;");
  for (size_t axis = 0; axis < outer; ++axis) {
    const std::string j = name_of("j", static_cast<int64_t>(axis));
    open("for (long " + j + " = 0; " + j + " < " + size(kernel_.rows.size() + axis) + "; ++" + j +
         ")");
  }
  const auto for_each_part = [&](const auto& use) {
    for (const size_t i : phase.sums) {
      if (kernel_.sums[i].kind == Kernel::Sum::Kind::EachElement)
        use(i, words_for(term(kernel_.sums[i].term).type));
    }
  };
  for_each_part([&](size_t i, const TypeWords& type) {
    line(std::string(type.vector) + " q" + std::to_string(i) + " = " + type.set + "(0);");
  });
  open(std::string(in_parts ? "for_columns_by_4" : "for_columns") +
       "(columns, [&](long i, auto w, int part) __attribute__((always_inline))");
  print_cells(phase, number);
  close("});");
  for_each_part([&](size_t i, const TypeWords&) {
    line(element(i) + " += sum_lanes(q" + std::to_string(i) + ");");
  });
  if (outer != 0) line("at += columns;");
  for (size_t axis = 0; axis < outer; ++axis) close();
  for (const TermId id : phase.reductions) print_reduction_end(id, in_parts);
}

void Printer::print_cells(const Phase& phase, int32_t number) {
  for (const TermId id : phase.terms) print_term(id, number);
  for (const TermId id : phase.kept) {
    const TypeWords& type = words_for(term(id).type);
    line(std::string("store_") + type.dtype + "((" + type.scalar + "*)(scratch + " +
         std::to_string(phases_.row_buffers[static_cast<size_t>(id)]) + " * " +
         size(row_buffer_at_) + ") + " + column() + ", " + t(id) + ", w);");
  }
  for (const size_t i : phase.stores)
    store(t(kernel_.stores[i].term), kernel_.stores[i].buffer, true);
  for (const size_t i : phase.sums) {
    const Kernel::Sum& sum = kernel_.sums[i];
    const std::string name = name_of("a", static_cast<int64_t>(i));
    const TypeWords& type = words_for(term(sum.term).type);
    if (sum.kind == Kernel::Sum::Kind::EachColumn) {
      const std::string place = name + " + " + column();
      line(std::string("store_") + type.dtype + "(" + place + ", load_" + type.dtype + "(" + place +
           ", w) + " + t(sum.term) + ", w);");
    } else {
      const std::string all =
          sum.kind == Kernel::Sum::Kind::EachElement ? name_of("q", static_cast<int64_t>(i)) : name;
      line(all + " = " + all + " + keep_first(" + t(sum.term) + ", 0, w);");
    }
  }
  for (const TermId id : phase.reductions) {
    const std::string value =
        "keep_first(" + t(term(id).operands[0]) + ", " + identity(term(id)) + ", w)";
    const std::string name = name_of("s", id) + "[part]";
    const std::string combined =
        term(id).op == Op::RowSum
            ? name + " + " + value
            : (term(id).op == Op::RowMax ? "maximum(" : "minimum(") + name + ", " + value + ")";
    line(name + " = " + combined + ";");
  }
}

/// The element of a sum that the columns of the innermost loop are summed up in.
std::string Printer::element(size_t sum) const {
  const auto index = static_cast<size_t>(kernel_.sums[sum].buffer);
  const Buffer& into = kernel_.buffers[index];
  std::string place = "0";
  for (size_t axis = 0; axis < into.rows.size(); ++axis) {
    if (into.rows[axis] != 0)
      place += " + r" + std::to_string(axis) + " * " + size(stride_index(index, axis));
  }
  for (size_t axis = 0; axis < into.columns.size(); ++axis) {
    if (into.columns[axis] != 0)
      place += " + j" + std::to_string(axis) + " * " +
               size(stride_index(index, kernel_.rows.size() + axis));
  }
  return "a" + std::to_string(sum) + "[" + place + "]";
}

std::string Printer::identity(const Term& term) const {
  if (term.op == Op::RowSum) return "0";
  return term.op == Op::RowMax ? "-__builtin_inff()" : "__builtin_inff()";
}

void Printer::print_reduction_end(TermId id, bool in_parts) {
  const Term& reduction = term(id);
  const TypeWords& type = words_for(reduction.type);
  const bool is_sum = reduction.op == Op::RowSum, is_max = reduction.op == Op::RowMax;
  const std::string s = name_of("s", id);
  const auto combined = [&](const std::string& one, const std::string& other) {
    if (is_sum) return "(" + one + " + " + other + ")";
    return (is_max ? "maximum(" : "minimum(") + one + ", " + other + ")";
  };
  const std::string all =
      in_parts ? combined(combined(s + "[0]", s + "[1]"), combined(s + "[2]", s + "[3]"))
               : s + "[0]";
  line(std::string("const ") + type.vector + " " + t(id) + " = " + type.set + "(" +
       (is_sum   ? "sum_lanes("
        : is_max ? "max_lanes("
                 : "min_lanes(") +
       all + "));");
}

/// Whether a pass is short, and the order of its sums is what takes the time.
bool Printer::is_taken_in_parts(const Phase& phase) const {
  int cost = 0;
  for (const TermId id : phase.terms) cost += traits_of(term(id).op).cost;
  return !phase.reductions.empty() && cost < short_body && inner_columns() >= 4 * printed_.lanes;
}

void Printer::store(const std::string& value, int32_t target, bool in_pass) {
  const Buffer& into = buffer(target);
  const MemoryWords memory = memory_words_of(into.dtype);
  std::string place = name_of("p", target);
  const auto index = static_cast<size_t>(target);
  if (!in_pass) {
    return line(std::string("store_") + memory.suffix + "(" + place + ", " + value + ", Tail{1});");
  }
  const size_t num_columns = into.columns.size();
  for (size_t axis = 0; axis + 1 < num_columns; ++axis) {
    if (into.columns[axis] != 0)
      place += " + j" + std::to_string(axis) + " * " +
               size(stride_index(index, kernel_.rows.size() + axis));
  }
  const std::string stride = size(stride_index(index, kernel_.rows.size() + num_columns - 1));
  const bool is_dense = into.columns.back() == 1;
  place += is_dense ? " + i" : " + i * " + stride;
  line(std::string("store_") + memory.suffix + "(" + place + ", " + value +
       (is_dense ? ", w);" : ", " + stride + ", w);"));
}

/// The word that reads the buffer of a load.
std::string Printer::load_word(const Term& load) const {
  const at::ScalarType dtype = buffer(load.buffer).dtype;
  const bool is_index = load.type == Type::I32 && dtype == at::kLong;
  return std::string("load_") + (is_index ? "index" : memory_words_of(dtype).suffix) + "(";
}

/// Where the elements of a load begin, for the columns that the innermost loop walks.
std::string Printer::row_start(const Term& load) const {
  const Buffer& from = buffer(load.buffer);
  const auto index = static_cast<size_t>(load.buffer);
  if (!load.by_row && !load.by_column)
    return std::string("(") + memory_words_of(from.dtype).scalar + "*)b[" + std::to_string(index) +
           "]";
  std::string place = name_of("p", load.buffer);
  for (size_t axis = 0; axis + 1 < from.columns.size(); ++axis) {
    if (from.columns[axis] != 0)
      place += " + j" + std::to_string(axis) + " * " +
               size(stride_index(index, kernel_.rows.size() + axis));
  }
  return place;
}

/// A place is the same for all columns, or is another one in each lane.
std::string Printer::load_at(const Term& load) {
  const Buffer& from = buffer(load.buffer);
  const auto index = static_cast<size_t>(load.buffer);
  const TermId place = load.operands[0];
  const std::string apart = size(row_buffer_at_ + 1 + index);
  const int64_t step = from.columns.empty() ? 0 : from.columns.back();
  const std::string along =
      size(stride_index(index, kernel_.rows.size() + from.columns.size() - 1));
  std::string start = row_start(load);
  if (!term(place).by_column) start += " + " + t(place) + "[0] * " + apart;
  if (step != 0) start += " + i * " + along;
  if (term(place).by_column) {
    return load_word(load) + start + ", Places{" + t(place) + ", " + apart + ", " +
           (step == 0 ? "0" : along) + "}, w)";
  }
  if (step == 1) return load_word(load) + start + ", w)";
  return load_word(load) + start + (step == 0 ? ", 0L, Full{})" : ", " + along + ", w)");
}

std::string Printer::load(const Term& load) {
  const Buffer& from = buffer(load.buffer);
  const std::string word = load_word(load), place = row_start(load);
  const auto index = static_cast<size_t>(load.buffer);
  if (!load.by_column) return word + place + ", 0L, Full{})";
  const size_t num_columns = from.columns.size();
  if (from.columns.back() == 0) return word + place + ", 0L, Full{})";
  if (from.columns.back() == 1) return word + place + " + i, w)";
  const std::string stride = size(stride_index(index, kernel_.rows.size() + num_columns - 1));
  return word + place + " + i * " + stride + ", " + stride + ", w)";
}

/// Short numbers are part of the text; others are arguments, so that kernels which differ in them
/// are the same.
std::string Printer::number(const Term& term) {
  const TypeWords& type = words_for(term.type);
  if (!is_float(term.type)) {
    // What is true has all bits set.
    const int64_t integer = term.type == Type::Bool ? -term.integer : term.integer;
    const std::string text = std::to_string(integer);
    return std::string(type.set) + "(" + text + (type.bytes == 8 ? "L)" : ")");
  }
  const double value = term.number;
  std::string text;
  if (std::fabs(value) <= 8 && std::floor(value * 4) == value * 4) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.2f", value);
    text = digits;
    if (value == 0 && std::signbit(value)) text = "-0.0";
  } else {
    text = "d[" + std::to_string(printed_.numbers.size()) + "]";
    printed_.numbers.push_back(value);
  }
  return std::string(type.set) + "((" + type.scalar + ")" + text + ")";
}

std::string Printer::convert(const Term& to) {
  const TermId operand = to.operands[0];
  const Type from = term(operand).type;
  if (to.type == Type::Bool) return "mask_i(to_mask(" + t(operand) + "))";
  const std::string value = from == Type::Bool ? "from_mask(" + t(operand) + ")" : t(operand);
  return std::string(words_for(to.type).convert) + "(" + value + ")";
}

std::string Printer::arithmetic(const Term& term) {
  const auto operand = [&](size_t i) { return t(term.operands[i]); };
  const auto infix = [&](const char* sign) { return operand(0) + " " + sign + " " + operand(1); };
  switch (term.op) {
    case Op::Add:
      return infix("+");
    case Op::Sub:
      return infix("-");
    case Op::Mul:
      return infix("*");
    case Op::Div:
      return infix("/");
    case Op::Neg:
      return "-" + operand(0);
    case Op::And:
      return infix("&");
    case Op::Or:
      return infix("|");
    case Op::Not:
      return "~" + operand(0);
    case Op::Less:
      return comparison(term, "<");
    case Op::LessEqual:
      return comparison(term, "<=");
    case Op::Equal:
      return comparison(term, "==");
    case Op::Select:
      return "select(" + condition(term.operands[0], term.type) + ", " + operand(1) + ", " +
             operand(2) + ")";
    case Op::RoundTo:
      return (term.dtype == at::kHalf ? "round_f16(" : "round_bf16(") + operand(0) + ")";
    default: {
      static constexpr std::pair<Op, const char*> functions[] = {
          {Op::Abs, "abs"},     {Op::Maximum, "maximum"}, {Op::Minimum, "minimum"},
          {Op::Pow, "pow"},     {Op::Floor, "floor"},     {Op::Ceil, "ceil"},
          {Op::Trunc, "trunc"}, {Op::Round, "round"},     {Op::Sqrt, "sqrt"},
          {Op::Rsqrt, "rsqrt"}, {Op::Sign, "sign"},       {Op::Exp, "exp"},
          {Op::Expm1, "expm1"}, {Op::Log, "log"},         {Op::Log2, "log2"},
          {Op::Log10, "log10"}, {Op::Log1p, "log1p"},     {Op::Erf, "erf"},
          {Op::Tanh, "tanh"},   {Op::Sigmoid, "sigmoid"}, {Op::Sin, "sin"},
          {Op::Cos, "cos"},     {Op::Rounded, "rounded"}, {Op::MultiplyAdd, "multiply_add"},
      };
      for (const auto& [op, name] : functions) {
        if (op != term.op) continue;
        std::string call = std::string(name) + "(" + operand(0);
        for (size_t i = 1; i < term.operands.size(); ++i) call += ", " + operand(i);
        return call + ")";
      }
      return {};
    }
  }
}

std::string Printer::expression(TermId id, int32_t pass) {
  const Term& own = term(id);
  const int32_t kept = phases_.row_buffers[static_cast<size_t>(id)];
  if (kept >= 0 && phases_.level[static_cast<size_t>(id)] < pass) {
    const TypeWords& type = words_for(own.type);
    return std::string("load_") + type.dtype + "((" + type.scalar + "*)(scratch + " +
           std::to_string(kept) + " * " + size(row_buffer_at_) + ") + " + column() + ", w)";
  }
  if (own.op == Op::Load) return load(own);
  if (own.op == Op::LoadAt) return load_at(own);
  if (own.op == Op::Position) return std::string("iota_i() + (int)(first + ") + column() + ")";
  if (own.op == Op::Number) return number(own);
  return own.op == Op::Convert ? convert(own) : arithmetic(own);
}

void Printer::print_term(TermId id, int32_t pass) {
  line(std::string("const ") + words_for(term(id).type).vector + " " + t(id) + " = " +
       expression(id, pass) + ";");
}

}  // namespace

PrintedKernel print_kernel(const Kernel& kernel, int vector_bytes) {
  return Printer(kernel, vector_bytes).run();
}

}  // namespace ahead::native
