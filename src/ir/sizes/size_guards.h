#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "ir/sizes/float_expression.h"
#include "ir/sizes/size_expression.h"

namespace ahead {

/// What a program was found to depend on while it was written down for sizes that may change: for
/// other sizes of which the same is true it is the same program.
class SizeGuards {
 public:
  enum class Relation : uint8_t { Equal, Less };

  /// Is told what the program depends on, before it is noted; may throw instead.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// That `left` is, or is not, equal to or less than `right`; `is_known`: as was told before.
    virtual void note_decision(Relation relation, const SizeExpression& left,
                               const SizeExpression& right, bool holds, bool is_known) = 0;
    /// The value of an expression.
    virtual void note_pin(const SizeExpression& expression, const std::string& reason) = 0;
  };

  /// For sizes that had these values then.
  explicit SizeGuards(std::vector<int64_t> values) : values_(std::move(values)) {}

  const std::vector<int64_t>& values() const { return values_; }
  /// Adds a size that has this value; returns its number.
  uint32_t add(int64_t value);
  void set_listener(std::shared_ptr<Listener> listener) { listener_ = std::move(listener); }
  bool has_listener() const { return listener_ != nullptr; }
  /// Whether `left` is equal to, or less than, `right`. From now on the program depends on it.
  bool decide(Relation relation, const SizeExpression& left, const SizeExpression& right);
  bool decide(Relation relation, const FloatExpression& left, const FloatExpression& right);
  /// The value of an expression. From now on the program depends on it, because of `reason`.
  int64_t pin(const SizeExpression& expression, const std::string& reason);
  double pin(const FloatExpression& expression, const std::string& reason);
  /// The value of an expression, on which the program does not depend.
  int64_t peek(const SizeExpression& expression) const;
  double peek(const FloatExpression& expression) const;

  /// Whether the program is the same for these sizes.
  bool hold(c10::ArrayRef<int64_t> sizes) const;
  /// Why the program depends on the value of a size; empty: it does not.
  const std::string& pinned() const { return pinned_; }
  /// Whether the program is for more than the sizes at hand: not all of them are pinned, and those
  /// that are not may have the values that they had before.
  bool is_of_use(std::vector<int64_t> before) const;
  size_t count() const { return guards_.size() + float_guards_.size(); }

 private:
  struct Guard {
    Relation relation;
    SizeExpression difference;  ///< compared with zero
    bool holds;
  };
  struct FloatGuard {
    Relation relation;
    FloatExpression left, right;
    bool holds;
  };

  static bool compare(Relation relation, double left, double right);

  std::vector<int64_t> values_;
  std::shared_ptr<Listener> listener_;
  std::unordered_set<std::string> known_;  ///< the guards' texts
  std::vector<Guard> guards_;
  std::vector<FloatGuard> float_guards_;
  std::string pinned_;
  std::vector<uint32_t> pinned_symbols_;
};

}  // namespace ahead
