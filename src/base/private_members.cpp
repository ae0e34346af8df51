#include "base/private_members.h"

namespace ahead {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::SavedVariable;
using torch::autograd::utils::DelayWarningHandler;
using torch::dynamo::autograd::TensorArgs;

}  // namespace

/// That a template is instantiated with a member is no use of its name, so the compiler lets it
/// pass.
template <class Tag, typename Tag::Type member>
struct PrivateMember {
  friend typename Tag::Type opened(Tag) { return member; }
};

template struct PrivateMember<ArgumentsOf, &TensorArgs::_args>;
template struct PrivateMember<SavedOf, &TensorArgs::_saved_variables>;
template struct PrivateMember<SavedDataOf, &SavedVariable::data_>;
template struct PrivateMember<NonDifferentiableOf, &AutogradContext::non_differentiable_>;
template struct PrivateMember<DirtyOf, &AutogradContext::dirty_inputs_>;
template struct PrivateMember<WarningsOf, &DelayWarningHandler::warnings_>;
template struct PrivateMember<WarningsLockOf, &DelayWarningHandler::mutex_>;

template <class Tag>
typename Tag::Type member_of(Tag tag) {
  return opened(tag);
}

template ArgumentsOf::Type member_of(ArgumentsOf);
template SavedOf::Type member_of(SavedOf);
template SavedDataOf::Type member_of(SavedDataOf);
template NonDifferentiableOf::Type member_of(NonDifferentiableOf);
template DirtyOf::Type member_of(DirtyOf);
template WarningsOf::Type member_of(WarningsOf);
template WarningsLockOf::Type member_of(WarningsLockOf);

}  // namespace ahead
