#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ahead/dim.h"

namespace ahead {

/// Finds expressions over sizes for numbers of which some values are known.
class Fitting {
 public:
  /// The values of one number in all samples.
  using Column = std::vector<int64_t>;

  /// The expression for an integer: one that is known, a multiple of a product of symbols, or with
  /// three values or more a multiple of a symbol plus a constant. None: it is nothing of these.
  std::optional<Dim> find(const Column& column) const;
  /// The same for an input's size, which is what it is: only an equal one stands for it.
  std::optional<Dim> find_equal(const Column& column) const;
  /// Lets an expression be found as it is.
  void note(const Column& column, Dim dim) { known_.emplace(column, dim); }
  /// Lets expressions be made of a symbol.
  void add_symbol(const Column& column, Dim dim);
  const std::map<Column, Dim>& known() const { return known_; }

 private:
  struct Symbol {
    Column column;
    Dim dim;
  };

  std::optional<Dim> find_product(const Column& column, const Symbol& before, size_t first,
                                  int depth) const;
  std::optional<Dim> find_sum(const Column& column) const;

  std::map<Column, Dim> known_;
  std::vector<Symbol> symbols_;
};

}  // namespace ahead
