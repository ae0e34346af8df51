#pragma once

#include "fuzz/program.h"

namespace ahead::fuzz {

/// How often inputs share memory with each other.
enum class Sharing : uint8_t { Seldom, Often };

/// What programs are made of.
struct Dialect {
  Sharing sharing = Sharing::Seldom;
  /// Operators with effects, backwards that write to tensors, lines under autocast, and regions
  /// that are checkpointed.
  bool effects = false;
  /// Inputs that are wrapper tensors.
  bool wrappers = false;
  /// Sizes of arguments, and numbers, that may be others in each call.
  bool call_numbers = false;
};

/// A random program, always the same for the same seed. All but a few run in eager mode, backward
/// included.
Program generate(uint64_t seed, const Dialect& dialect = {});

}  // namespace ahead::fuzz
