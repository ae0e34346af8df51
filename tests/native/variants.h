#pragma once

#include <ATen/Version.h>
#include <gtest/gtest.h>

#include <functional>
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
  if (host == "AVX512") all.insert(all.end(), {{"AVX512", 16}, {"AVX512", 8}});
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

/// Functions that are compiled together, and what is to be checked of each.
class Batch {
 public:
  explicit Batch(Variant variant) : variant_(std::move(variant)) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    const std::vector<KernelAddress> addresses = build_for(variant_, functions_);
    for (size_t i = 0; i < addresses.size(); ++i) {
      SCOPED_TRACE(functions_[i].second);
      EXPECT_NE(addresses[i], nullptr);
      if (addresses[i] != nullptr) checks_[i](addresses[i]);
    }
  }

  const Variant& variant() const { return variant_; }

  /// Adds a function with these parameters and this body; it is compiled and checked when the batch
  /// ends.
  template <class Function>
  void add(const std::string& parameters, const std::string& body,
           std::function<void(Function*)> check) {
    const std::string name = "run_" + std::to_string(functions_.size());
    functions_.emplace_back(
        name, "extern \"C\" void " + name + "(" + parameters + ") {\n" + body + "\n}\n");
    checks_.push_back(
        [check](KernelAddress address) { check(reinterpret_cast<Function*>(address)); });
  }

 private:
  Variant variant_;
  std::vector<std::pair<std::string, std::string>> functions_;
  std::vector<std::function<void(KernelAddress)>> checks_;
};

/// A test with each variant.
class EachVariant : public ::testing::TestWithParam<Variant> {};

}  // namespace ahead::native::test
