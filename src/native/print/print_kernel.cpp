#include "native/print/print_kernel.h"

#include <algorithm>
#include <cstdio>

#include "base/hash.h"
#include "native/place/phases.h"
#include "native/print/expressions.h"
#include "native/print/kernel_sizes.h"
#include "native/print/type_words.h"

namespace ahead::native {
namespace {

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
/// Words are for no fewer.
constexpr int fewest_lanes = 4;
/// Bodies that cost more are not taken in parts.
constexpr int short_body = 24;

/// Prints one kernel.
class Printer {
 public:
  Printer(const Kernel& kernel, int vector_bytes)
      : kernel_(kernel),
        phases_(divide(kernel)),
        sizes_(kernel),
        expressions_(kernel, phases_, sizes_) {
    const bool is_wide =
        std::any_of(kernel.terms.begin(), kernel.terms.end(),
                    [](const Term& term) { return words_for(term.type).bytes == 8; });
    printed_.lanes = std::max(vector_bytes / (is_wide ? 8 : 4), fewest_lanes);
  }

  PrintedKernel run() {
    printed_.sizes = sizes_.all();
    printed_.sum_bytes = sizes_.sum_bytes();
    printed_.scratch_bytes = sizes_.row_buffer_bytes() * phases_.num_row_buffers;
    printed_.may_divide_columns = may_divide_columns();
    print_function();
    printed_.numbers = expressions_.numbers();
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

  bool may_divide_columns() const;
  void print_function();
  void print_row_pointers();
  void print_phase(const Phase& phase, int32_t number);
  void print_pass(const Phase& phase, int32_t number);
  void print_cells(const Phase& phase, int32_t number);
  void print_term(TermId id, int32_t pass);
  std::string identity(const Term& term) const;
  void print_reduction_end(TermId id, bool in_parts);
  bool is_taken_in_parts(const Phase& phase) const;

  const Kernel& kernel_;
  const Phases phases_;
  const KernelSizes sizes_;
  Expressions expressions_;
  PrintedKernel printed_;
  std::string body_;
  int indent_ = 1;
  bool uses_parts_ = false;
};

/// Whether calls for some columns each do what one for all of them does.
bool Printer::may_divide_columns() const {
  return kernel_.columns.size() == 1 && phases_.num_row_buffers == 0 &&
         std::none_of(kernel_.terms.begin(), kernel_.terms.end(),
                      [](const Term& term) { return is_row_reduction(term.op); }) &&
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
           "*)(sums + " + sizes_.begin_of_sum(i) + ");");
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
         sizes_.begin_of_sum(i) + ") += " + (is_all ? "sum_lanes(" + name + ")" : name + "[0]") +
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
      const std::string size = sizes_.row_axis(axis);
      line("const long " + name + " = rest % " + size + "; rest /= " + size + ";");
    }
  }
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& buffer = kernel_.buffers[i];
    const MemoryWords memory = memory_words_of(buffer.dtype);
    std::string place = std::string("(") + memory.scalar + "*)b[" + std::to_string(i) + "]";
    for (size_t axis = 0; axis < num_rows; ++axis) {
      if (buffer.rows[axis] == 0) continue;
      place += " + r" + std::to_string(axis) + " * " + sizes_.along_rows(i, axis);
    }
    if (printed_.may_divide_columns && buffer.columns[0] != 0) {
      place += buffer.columns[0] == 1 ? " + first" : " + first * " + sizes_.along_columns(i, 0);
    }
    line(std::string(memory.scalar) + "* const p" + std::to_string(i) + " = " + place + ";");
  }
}

void Printer::print_phase(const Phase& phase, int32_t number) {
  for (const TermId id : phase.row_terms) print_term(id, number);
  for (const size_t i : phase.row_stores)
    line(expressions_.store(t(kernel_.stores[i].term), kernel_.stores[i].buffer, false));
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
    open("for (long " + j + " = 0; " + j + " < " + sizes_.column_axis(axis) + "; ++" + j + ")");
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
    line(expressions_.element(i) + " += sum_lanes(q" + std::to_string(i) + ");");
  });
  if (outer != 0) line("at += columns;");
  for (size_t axis = 0; axis < outer; ++axis) close();
  for (const TermId id : phase.reductions) print_reduction_end(id, in_parts);
}

void Printer::print_cells(const Phase& phase, int32_t number) {
  for (const TermId id : phase.terms) print_term(id, number);
  for (const TermId id : phase.kept) line(expressions_.keep(id));
  for (const size_t i : phase.stores)
    line(expressions_.store(t(kernel_.stores[i].term), kernel_.stores[i].buffer, true));
  for (const size_t i : phase.sums) {
    const Kernel::Sum& sum = kernel_.sums[i];
    const std::string name = name_of("a", static_cast<int64_t>(i));
    const TypeWords& type = words_for(term(sum.term).type);
    if (sum.kind == Kernel::Sum::Kind::EachColumn) {
      const std::string place = name + " + " + expressions_.column();
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

void Printer::print_term(TermId id, int32_t pass) {
  line(std::string("const ") + words_for(term(id).type).vector + " " + t(id) + " = " +
       expressions_.of(id, pass) + ";");
}

}  // namespace

PrintedKernel print_kernel(const Kernel& kernel, int vector_bytes) {
  return Printer(kernel, vector_bytes).run();
}

}  // namespace ahead::native
