#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "native/loops/term.h"

namespace ahead::native {

/// How a type of numbers is written.
struct TypeWords {
  const char* vector;
  const char* scalar;
  const char* set;      ///< all lanes the same
  const char* dtype;    ///< of row buffers and sums
  const char* convert;  ///< from others
  int64_t bytes;
};
const TypeWords& words_for(Type type);

/// How a dtype is written in memory.
struct MemoryWords {
  const char* scalar;
  const char* suffix;  ///< of loads and stores
};
MemoryWords memory_words_of(at::ScalarType dtype);

}  // namespace ahead::native
