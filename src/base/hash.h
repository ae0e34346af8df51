#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

/// Hashing that gives the same numbers in every process on machines of the same byte order.
namespace ahead {

/// A bijection in which every bit of the number changes about half the bits of the result.
inline uint64_t hash_scramble(uint64_t number) {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
  return number ^ (number >> 31);
}

/// Continues the hash `seed` with a number; the order of calls counts.
inline uint64_t hash_combine(uint64_t seed, uint64_t number) {
  return hash_scramble((seed + 1) * 0x9e3779b97f4a7c15u ^ number);
}

/// Continues the hash `seed` with a run of bytes and its length.
inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0) {
  uint64_t hash = hash_combine(seed, bytes.size());
  for (; bytes.size() >= sizeof(uint64_t); bytes.remove_prefix(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    hash = hash_combine(hash, word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data(), bytes.size());
  return hash_combine(hash, rest);
}

}  // namespace ahead
