#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "native/loops/kernel.h"
#include "native/place/phases.h"
#include "native/print/kernel_sizes.h"

namespace ahead::native {

/// The name of one of several variables of a kind: t3.
std::string name_of(const char* kind, int64_t index);

/// How values of a kernel are written, and where they lie in memory.
class Expressions {
 public:
  Expressions(const Kernel& kernel, const Phases& phases, const KernelSizes& sizes)
      : kernel_(kernel), phases_(phases), sizes_(sizes) {}

  /// What a term is in a pass, made of the terms before it or read from memory.
  std::string of(TermId id, int32_t pass);
  /// The statement that writes a value to a buffer, for some columns or for a row.
  std::string store(const std::string& value, int32_t buffer, bool in_pass) const;
  /// The statement that writes a term to its row buffer.
  std::string keep(TermId id) const;
  /// The element of a sum that the columns of the innermost loop are summed up in.
  std::string element(size_t sum) const;
  /// The position among all columns.
  const char* column() const { return kernel_.columns.size() > 1 ? "at + i" : "i"; }
  /// Those that the text names as arguments, in their order.
  const std::vector<double>& numbers() const { return numbers_; }

 private:
  const Term& term(TermId id) const { return kernel_.terms[static_cast<size_t>(id)]; }
  const Buffer& buffer(int32_t id) const { return kernel_.buffers[static_cast<size_t>(id)]; }
  static std::string t(TermId id) { return name_of("t", id); }

  std::string row_buffer(TermId id) const;
  std::string outer_columns(size_t buffer) const;
  std::string arithmetic(const Term& term) const;
  std::string load(const Term& term) const;
  std::string load_at(const Term& term) const;
  std::string row_start(const Term& load) const;
  std::string load_word(const Term& load) const;
  std::string number(const Term& term);
  std::string convert(const Term& term) const;
  std::string condition(TermId id, Type type) const;
  std::string comparison(const Term& term, const char* sign) const;

  const Kernel& kernel_;
  const Phases& phases_;
  const KernelSizes& sizes_;
  std::vector<double> numbers_;
};

}  // namespace ahead::native
