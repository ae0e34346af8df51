#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/entry.h"

namespace ahead::detail {

/// For Dynamic::Trusting: what calls that differ in sizes only have in common, and the program that
/// serves those whose sizes no call had before. Whoever uses it holds CompiledCore::State::mutex.
class AgreedSizes {
 public:
  /// So many combinations of sizes have to agree with a program before others are trusted.
  static constexpr size_t kEnough = 8;

  /// A combination that agreed: its sizes, and the numbers in what happens after the graph.
  struct Sample {
    std::vector<int64_t> sizes, numbers;
  };
  /// All that is known of combinations that agreed with one program.
  struct Agreement {
    std::shared_ptr<const Entry> last;
    std::vector<Sample> samples;
  };

  /// What decides whether calls differ in sizes only.
  struct Call {
    const Situation& now;
    const compiling::ModuleWatch& watch;
    const Dependence& depends_on;
  };

  /// Notes what an observed call did, but for numbers; none: no program for many sizes can be made
  /// of that. False: others did something else, so that no sizes are trusted from now on.
  bool note_tape(const Call& call, std::optional<uint64_t> skeleton);
  /// The same for the graph that was traced for the call.
  bool note_graph(const Call& call, const std::shared_ptr<const void>& family);
  /// Adds the entry for a call that was seen to do what a program does.
  bool add(const Call& call, const std::shared_ptr<const Entry>& entry);
  /// What a call may be served by, should its sizes be new; null: nothing.
  std::shared_ptr<const Agreement> find(const Call& call) const;
  /// Forgets about a program that turned out to be wrong.
  void forget(const compiling::SizedProgram& program);
  void clear() { kinds_.clear(); }

 private:
  /// Calls that differ in sizes of 2 or more only.
  struct Kind {
    CallKind example;
    std::vector<int64_t> small_sizes, static_sizes;
    bool decides_by_sizes = false;
    std::optional<uint64_t> skeleton = {};
    std::weak_ptr<const void> family = {};
    std::weak_ptr<const Entry> last = {};
    std::string result_spec = {};
    std::vector<Sample> samples = {};

    bool takes(const Call& call) const;
  };

  Kind& kind_of(const Call& call);
  static bool distrust(Kind& kind);

  std::vector<Kind> kinds_;
};

/// An entry for a call whose sizes are new, if what is known of others says how the program has to
/// run for these and LibTorch's operators agree that its tensors are of such sizes; else null.
std::shared_ptr<Entry> make_trusted_entry(const AgreedSizes::Agreement& agreement,
                                          const AgreedSizes::Call& call);

}  // namespace ahead::detail
