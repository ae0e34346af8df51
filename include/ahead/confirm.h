#pragma once

#include <cstdint>

namespace ahead {

/// When a compiled function is observed again, to see that it still does the same.
class Confirm {
 public:
  enum Kind : uint8_t {
    Doubling,   ///< at calls 2, 4, 8, … of each kind of call; from the second on graphs serve
    EveryCall,  ///< always: no call runs from graphs, and a function that changes is told of at
                ///< once
    Never,      ///< the first call is compiled before it returns, and trusted from then on
  };

  constexpr Confirm(Kind kind) : kind_(kind) {}
  /// 0 is Never, any other number Doubling.
  constexpr Confirm(int64_t calls) : kind_(calls == 0 ? Never : Doubling) {}
  constexpr Confirm(int calls) : Confirm(static_cast<int64_t>(calls)) {}

  constexpr Kind kind() const { return kind_; }
  constexpr bool operator==(const Confirm&) const = default;

 private:
  Kind kind_;
};

}  // namespace ahead
