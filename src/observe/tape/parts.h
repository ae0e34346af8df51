#pragma once

#include <vector>

#include "observe/tape/tape.h"

namespace ahead::observe {

/// A stretch of a recording that can be a program of its own.
struct Part {
  size_t begin = 0, end = 0;          ///< the steps of the tape that it has
  std::vector<VariableId> ins = {};   ///< the variables it is given
  std::vector<VariableId> outs = {};  ///< the variables it returns
  std::vector<size_t> captured = {};  ///< tensors from outside, among Tape::captured
  std::vector<size_t> hooks = {};     ///< the steps about hooks that follow it
  bool is_one_by_one = false;         ///< its operators have to be called, rather than be compiled
  uint32_t last_ambient = 0;          ///< the modes at its end, among Tape::ambients
};

/// The whole recording, but for its hooks: it is given the call's arguments and then the state that
/// the call before had stored, and returns the call's results and then the tensors that it stored.
Part whole(const Tape& tape);

/// Whether a recording has hooks that somebody may call when it is over.
bool has_hooks(const Tape& tape);

/// The recording in parts, so that hooks can be registered between them: after the operator that
/// made the tensor they are on, which is a part of its own, so that gradients of any order meet
/// them as in eager. The first part is empty: its hooks come before all else. Throws Unsupported if
/// the recording cannot be divided there.
std::vector<Part> split(const Tape& tape);

/// Whether these parts are more than hooks and then the whole recording.
bool is_divided(const std::vector<Part>& parts);

}  // namespace ahead::observe
