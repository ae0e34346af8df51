#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "compile/entry.h"

namespace ahead::detail {

/// The entries of programs for many sizes, one for each choice of sizes for which the function was
/// seen to do what the program does; found by the sizes of the arguments and the numbers among
/// them. Readers never wait; writers hold a lock of their own.
class SizedEntries {
 public:
  using Map = std::unordered_multimap<uint64_t, std::shared_ptr<Entry>>;

  /// So many are kept; of more, those that ran last.
  static constexpr size_t kMost = 4096;
  /// So many of them for calls that only modes, modules or what they captured tell apart.
  static constexpr size_t kMostAlike = 16;

  /// The key of entries for arguments with this key, in whose calls values decide these sizes. One
  /// entry of each program is found by the arguments alone: it finds out what these sizes are.
  static uint64_t key_with(uint64_t key, const std::vector<int64_t>& value_sizes);

  std::shared_ptr<const Map> all() const { return map_.load(); }
  bool empty() const { return all()->empty(); }
  /// Adds an entry for calls like this one. It takes the place of one with numbers that may have
  /// any value, if both fit the same calls.
  void add(const Situation& now, std::shared_ptr<Entry> entry);
  void remove(const std::shared_ptr<Entry>& entry);
  /// Removes all entries for sizes that no call was observed with. Returns whether there were any.
  bool remove_trusted();
  /// Removes all entries of a program.
  void remove(const std::shared_ptr<compiling::SizedProgram>& program);
  void clear() { map_.store(std::make_shared<const Map>()); }

 private:
  std::atomic<std::shared_ptr<const Map>> map_{std::make_shared<const Map>()};
};

}  // namespace ahead::detail
