#include "engine/private_members.h"

namespace ahead::engine {
namespace {

using torch::autograd::utils::DelayWarningHandler;
using torch::dynamo::autograd::TensorArgs;

}  // namespace

/// That a template is instantiated with a member is no use of its name, so the compiler lets it
/// pass.
template <class Tag, typename Tag::Type member>
struct PrivateMember {
  friend typename Tag::Type member_of(Tag) { return member; }
};

template struct PrivateMember<ArgumentsOf, &TensorArgs::_args>;
template struct PrivateMember<SavedOf, &TensorArgs::_saved_variables>;
template struct PrivateMember<WarningsOf, &DelayWarningHandler::warnings_>;
template struct PrivateMember<WarningsLockOf, &DelayWarningHandler::mutex_>;

}  // namespace ahead::engine
