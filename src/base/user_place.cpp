#include "base/user_place.h"

#include <dlfcn.h>
#include <torch/csrc/profiler/unwind/unwind.h>
#include <unwind.h>

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/intern.h"
#include "base/thread_object.h"

namespace ahead {
namespace {

using torch::unwind::Frame;

constexpr size_t most_frames = 256;
/// More than these tell nobody anything.
constexpr size_t most_places = 8;
/// How far before a call the instructions of its statement are looked for.
constexpr size_t most_bytes_before = 1024;

struct KnownFrame {
  enum class Owner { User, Ahead, Other };
  Owner owner = Owner::Other;
  std::string text = {};
};

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return text.starts_with(beginning); });
}

bool is_aheads_header(std::string_view file) {
  return file.find("/include/ahead/") != std::string_view::npos;
}

bool is_header_of_library(std::string_view file) {
  return is_aheads_header(file) ||
         contains_any(file, {"/include/ATen/", "/include/c10/", "/include/torch/",
                             "/include/caffe2/", "/include/c++/", "/include/x86_64"});
}

/// A function's name with its namespaces, without what it returns and takes.
std::string_view qualified_name(std::string_view function) {
  constexpr std::string_view names_with_parentheses[] = {"(anonymous namespace)", "(auto)"};
  size_t begin = 0, depth = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    depth += function[i] == '<' ? 1 : 0;
    depth -= function[i] == '>' && depth != 0 ? 1 : 0;
    if (depth != 0) continue;
    for (std::string_view name : names_with_parentheses) {
      if (function.substr(i).starts_with(name)) i += name.size();
    }
    if (i < function.size() && function[i] == ' ') begin = i + 1;
    if (i < function.size() && function[i] == '(') return function.substr(begin, i - begin);
  }
  return function.substr(begin);
}

bool is_function_of_library(std::string_view function) {
  return starts_with_any(
      qualified_name(function),
      {"at::", "c10::", "torch::", "std::", "__gnu_cxx::", "ahead::detail::", "ahead::Compiled<"});
}

/// By the names that these libraries have on all systems.
bool is_other_library(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return starts_with_any(name, {"libtorch", "libc10", "libc.", "libc-", "libstdc++", "libgcc",
                                "libgomp", "libm.", "libpthread", "ld-linux", "libmkl", "libcu"});
}

std::vector<Frame> frames_at(const std::vector<void*>& addresses) {
  try {
    return torch::unwind::symbolize(addresses, torch::unwind::Mode::fast);
  } catch (const std::exception&) {
    // There is no such thing for this kind of processor.
    return std::vector<Frame>(addresses.size(), {"??", "??", 0});
  }
}

/// A call to LibTorch is made by a function of its headers, which the compiler has put into the
/// user's. The instructions before that are the user's own.
Frame frame_of_user(void* address) {
  Frame frame = frames_at({address})[0];
  if (!is_header_of_library(frame.filename)) return frame;
  std::vector<void*> before;
  for (size_t i = 1; i <= most_bytes_before; ++i) before.push_back(static_cast<char*>(address) - i);
  for (Frame& earlier : frames_at(before)) {
    if (earlier.funcname != frame.funcname) break;
    if (!is_header_of_library(earlier.filename)) return std::move(earlier);
  }
  return frame;
}

/// The file and line are left out if they are not the user's, and so is the function.
std::string describe(const Frame& frame) {
  std::string text;
  if (!is_header_of_library(frame.filename))
    text = frame.filename + ":" + std::to_string(frame.lineno);
  if (frame.funcname == "??" || is_function_of_library(frame.funcname)) return text;
  const std::string function = frame.funcname.substr(0, frame.funcname.find(" [clone "));
  return text.empty() ? function : text + " " + function;
}

const void* base_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) == 0 ? nullptr : info.dli_fbase;
}

const void* own_base() {
  static const void* const base = base_of(reinterpret_cast<const void*>(&user_place));
  return base;
}

KnownFrame look_up(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  if (info.dli_fbase == own_base()) return {KnownFrame::Owner::Ahead};
  if (is_other_library(info.dli_fname)) return {};
  const Frame frame = frame_of_user(address);
  const bool has_line = frame.filename != info.dli_fname;
  if (is_function_of_library(frame.funcname) &&
      (!has_line || is_header_of_library(frame.filename))) {
    return {is_aheads_header(frame.filename) ? KnownFrame::Owner::Ahead : KnownFrame::Owner::Other};
  }
  return {KnownFrame::Owner::User, describe(frame)};
}

const KnownFrame& find_frame(void* address) {
  auto& known = thread_object<std::unordered_map<void*, KnownFrame>, struct KnownFrames>();
  const auto found = known.find(address);
  return found != known.end() ? found->second
                              : known.emplace(address, look_up(address)).first->second;
}

/// Gathers places while the stack is walked.
struct Gathering {
  uintptr_t end = 0;  ///< where frames begin that are beyond the function; 0: unknown
  size_t num_frames = 0;
  size_t num_places = 0;
  std::string text = {};

  /// Whether to go on.
  bool add(const KnownFrame& frame, uintptr_t address) {
    // The compiler may have put the user's function into the one that called it.
    const bool is_outside = end != 0 && address >= end;
    if (num_places != 0 && (is_outside || frame.owner == KnownFrame::Owner::Ahead)) return false;
    if (frame.owner == KnownFrame::Owner::User)
      text.append(num_places++ == 0 ? "" : " < ").append(frame.text);
    return !is_outside && num_places < most_places && ++num_frames < most_frames;
  }
};

/// Where a frame goes on when what it called returns.
void* address_in(_Unwind_Context* context) {
  return reinterpret_cast<void*>(_Unwind_GetIP(context));  // NOLINT(performance-no-int-to-ptr)
}

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* gathering) {
  void* const address = address_in(context);
  if (address == nullptr) return _URC_END_OF_STACK;
  const KnownFrame& frame = find_frame(address);
  return static_cast<Gathering*>(gathering)->add(frame, _Unwind_GetCFA(context))
             ? _URC_NO_REASON
             : _URC_END_OF_STACK;
}

_Unwind_Reason_Code find_caller(_Unwind_Context* context, void* address) {
  if (base_of(address_in(context)) == own_base()) return _URC_NO_REASON;
  *static_cast<uintptr_t*>(address) = _Unwind_GetCFA(context);
  return _URC_END_OF_STACK;
}

}  // namespace

StackMark StackMark::of_caller() {
  StackMark mark{std::this_thread::get_id()};
  _Unwind_Backtrace(find_caller, &mark.address);
  return mark;
}

const std::string* user_place(const StackMark& end) {
  Gathering gathering;
  if (end.thread == std::this_thread::get_id()) gathering.end = end.address;
  _Unwind_Backtrace(visit_frame, &gathering);
  return gathering.text.empty() ? nullptr : intern(gathering.text);
}

}  // namespace ahead
