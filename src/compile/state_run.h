#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "compile/entry.h"

namespace ahead::detail {

/// Whether all tensors that a program would be given as state were there to trace it with.
bool is_traceable(const observe::Tape& tape);
/// The tensors that a call stored, in the order of the program's results.
std::vector<StateTensor> states_of(const observe::Tape& tape);
/// The state that a program is given after the arguments of the call, in order.
std::vector<StateArgument> state_arguments_of(const observe::Tape& tape);

/// The state that one run of a program takes from the user's objects, and leaves there.
class StateRun {
 public:
  /// None: something that the program needs is gone.
  static std::optional<StateRun> begin(const Entry& entry, const Situation& now);

  /// The program's inputs: the arguments of the call, then the state that calls before stored.
  const std::vector<at::Tensor>& arguments() const { return arguments_; }
  /// Takes the tensors to be stored off the end of the program's results, and puts each where the
  /// function itself would have. The numbers that it took from the host have been used.
  void store(std::vector<at::Tensor>& results);

 private:
  StateRun(std::shared_ptr<const Entry::Seen> seen, const HostParts& host,
           std::vector<at::Tensor> arguments)
      : seen_(std::move(seen)), host_(host), arguments_(std::move(arguments)) {}

  std::shared_ptr<const Entry::Seen> seen_;
  HostParts host_;
  std::vector<at::Tensor> arguments_;
  /// For each tensor that is stored in a place that is not known, the object that becomes it;
  /// undefined for those with handles.
  std::vector<at::Tensor> objects_;
  std::vector<std::shared_ptr<HostState>> hosts_;
};

}  // namespace ahead::detail
