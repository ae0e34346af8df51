#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ahead::native {

/// A word of the language in which kernels are printed: a piece of C++ without headers that defines
/// `name` for vectors of LANES lanes.
struct Word {
  const char* name;
  const char* text;
  /// Whether this is the overload for vectors of 64-bit lanes, which kernels without these go
  /// without.
  bool wide = false;
  /// The number of lanes that it is for; 0: any.
  int lanes = 0;
};

/// The text of a kernel with what it needs before it: the types of vectors of that many lanes, and
/// the words that its text names, with the words that these name. The lanes are a power of two, 4
/// to 64. Texts made with different lanes can be in one file, each in a namespace of its own.
std::string with_prelude(const std::string& kernel, int lanes);

/// A hash of all words: with the text of a kernel and its lanes it decides what with_prelude gives.
uint64_t hash_of_words();

/// The words for loading, storing and converting, for arithmetic and reductions, for functions of
/// float32 and of float64, and for those of a library; each only names words that come before it in
/// this order.
std::span<const Word> basic_words();
std::span<const Word> memory_words();
std::span<const Word> arithmetic_words();
std::span<const Word> table_words();
std::span<const Word> float_words();
std::span<const Word> double_words();
std::span<const Word> library_words();

}  // namespace ahead::native
