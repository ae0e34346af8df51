#pragma once

#include <ATen/Version.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "native/build/kernel_library.h"
#include "native/print/prelude.h"

namespace ahead::native::test {

/// Code for one kind of processor, in vectors of so many lanes.
struct Variant {
  std::string capability;
  int lanes;
};

inline void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.capability << " with " << variant.lanes << " lanes";
}

/// The variants that this processor can run.
inline std::vector<Variant> variants() {
  const std::string host = at::get_cpu_capability();
  std::vector<Variant> all{{"DEFAULT", 4}, {"DEFAULT", 8}};
  if (host == "AVX2" || host == "AVX512") all.insert(all.end(), {{"AVX2", 8}, {"AVX2", 4}});
  if (host == "AVX512") all.insert(all.end(), {{"AVX512", 16}, {"AVX512", 8}, {"AVX512", 32}});
  return all;
}

/// Compiles functions, given by their names and definitions, for a variant; nothing is kept on
/// disk.
inline std::vector<KernelAddress> build_for(
    const Variant& variant, const std::vector<std::pair<std::string, std::string>>& functions) {
  std::vector<KernelSource> sources;
  for (const auto& [name, text] : functions)
    sources.push_back({name, with_prelude(text, variant.lanes)});
  KernelLibrary library({find_target(variant.capability), ""});
  return library.build(sources);
}

/// As above, for one function of a type.
template <class Function>
Function* build_one(const Variant& variant, const std::string& name, const std::string& text) {
  return reinterpret_cast<Function*>(build_for(variant, {{name, text}}).at(0));
}

/// A test with each variant.
class EachVariant : public ::testing::TestWithParam<Variant> {};

}  // namespace ahead::native::test
