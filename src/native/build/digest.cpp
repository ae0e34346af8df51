#include "native/build/digest.h"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "base/hash.h"

namespace ahead::native {

std::string digest(std::string_view bytes) {
  // Two states that never meet: each is as wide as a number.
  constexpr uint64_t one_seed = 0x61, other_seed = 0x68656164;
  std::array<char, 33> digits;
  std::snprintf(digits.data(), digits.size(), "%016" PRIx64 "%016" PRIx64,
                hash_bytes(bytes, one_seed), hash_bytes(bytes, other_seed));
  return digits.data();
}

}  // namespace ahead::native
