#pragma once

#include <c10/core/SymNodeImpl.h>

#include <string>

namespace ahead {

/// A decision that was made and noted, where LibTorch expects a truth value.
class DecisionNode final : public c10::SymNodeImpl {
 public:
  explicit DecisionNode(bool value) : value_(value) {}
  static c10::SymNode make(bool value) { return c10::make_intrusive<DecisionNode>(value); }

  bool is_int() override { return false; }
  bool is_bool() override { return true; }
  bool is_float() override { return false; }
  bool has_hint() override { return true; }
  std::string str() override { return value_ ? "true" : "false"; }
  c10::SymNode clone() override { return make(value_); }
  c10::SymNode wrap_bool(bool value) override { return make(value); }
  c10::SymNode sym_and(const c10::SymNode& other) override {
    return make(value_ && value_of(other));
  }
  c10::SymNode sym_or(const c10::SymNode& other) override {
    return make(value_ || value_of(other));
  }
  c10::SymNode sym_not() override { return make(!value_); }
  c10::SymNode sym_ite(const c10::SymNode& yes, const c10::SymNode& no) override {
    return value_ ? yes : no;
  }
  bool guard_bool(const char*, int64_t) override { return value_; }
  bool bool_() override { return value_; }
  std::optional<bool> constant_bool() override { return value_; }

 private:
  static bool value_of(const c10::SymNode& node) { return node->guard_bool(__FILE__, __LINE__); }

  bool value_;
};

}  // namespace ahead
