#pragma once

#include <string>
#include <vector>

#include "observe/tape/tape.h"
#include "runtime/call/call_plan.h"

/// What a recording says about the programs that can be made of it.
namespace ahead::detail {

/// Whether the code reads values of tensors.
bool reads_values(const observe::Tape& tape);
/// Whether values decide how large tensors of a recording are.
bool has_sizes_of_values(const observe::Tape& tape);
/// Whether it uses a wrapper (ahead/subclass.h) from outside that is no argument.
bool captures_wrappers(const observe::Tape& tape);
/// Whether the code gave leaves gradients, took them away, or used them.
bool touches_grads(const observe::Tape& tape);
/// Leaves whose gradient the code takes away before it uses the leaf, and the program is not given.
std::vector<observe::WeakTensor> leaves_without_grads(const observe::Tape& tape,
                                                      const runtime::CallPlan& plan);
/// Why no program could compute the tensors that a call stored, or put them where the user has
/// them; empty: one can.
std::string why_not_storable(const observe::Tape& tape);
/// Whether one tape is enough for a program: it stores nothing, and each tensor from outside
/// outlives the call or has known contents.
bool is_self_contained(const observe::Tape& tape);

/// Throws Unsupported for a tensor, captured or passed again, whose history grows with every call:
/// it has the nodes of all calls in it, whose saved tensors a backward from other results releases.
/// `before` is the recording of the call before, if there was one.
void check_histories(const runtime::CallPlan& plan, const std::vector<at::Tensor>& arguments,
                     const observe::Tape* before);

/// The message, with a remedy, for a function that does something else in calls that look alike.
std::string in_words(const observe::TapeDifference& found);

}  // namespace ahead::detail
