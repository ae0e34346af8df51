#include "observe/tape/skeleton.h"

#include "base/hash.h"

namespace ahead::observe {
namespace {

class Skeleton {
 public:
  void add(uint64_t number) { hash_ = hash_combine(hash_, number); }
  void add(const std::vector<VariableId>& ids) {
    add(ids.size());
    for (const VariableId id : ids) add(static_cast<uint64_t>(id));
  }
  void add(const c10::IValue& argument) {
    add(static_cast<uint64_t>(argument.isNone() ? 0 : argument.tagKind().size() + 1));
    if (argument.isBool()) add(argument.toBool() ? 1U : 2U);
    if (argument.isList()) add(argument.toListRef().size());
  }
  void add(const Step& step) {
    add(static_cast<uint64_t>(step.kind));
    add(reinterpret_cast<uintptr_t>(step.op));
    add(step.is_apart ? 1U : 0U);
    add(step.ins);
    add(step.outs);
    for (const c10::IValue& argument : step.args) add(argument);
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

}  // namespace

uint64_t skeleton_of(const Tape& tape) {
  Skeleton skeleton;
  for (const Step& step : tape.steps) skeleton.add(step);
  skeleton.add(tape.results);
  for (const CapturedTensor& captured : tape.captured)
    skeleton.add(static_cast<uint64_t>(captured.id));
  return skeleton.hash();
}

}  // namespace ahead::observe
