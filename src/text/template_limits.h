// Bounds for Jinja templates, which come with model files and so from anybody: libllama-common's interpreter has none.
//
// The tree that it parses is run by its own nodes, each of which is given one more task here: to count its step, its
// depth and the size of what it made before the next one runs. Used by chat_template.cc alone.
#pragma once

#include <jinja/runtime.h>

#include <cstddef>
#include <string>

namespace winnow {

// Thrown through the interpreter, which passes it on: it is not a std::exception. `reason` ends a sentence that begins
// with "the chat template".
struct TemplateLimit {
  std::string reason;
};

// What the templates that this thread runs may spend while it lives. One at a time on a thread.
class TemplateBudget {
 public:
  explicit TemplateBudget(std::size_t n_steps);
  ~TemplateBudget();
  TemplateBudget(const TemplateBudget&) = delete;
  TemplateBudget& operator=(const TemplateBudget&) = delete;

  void spend(std::size_t n_steps);

  std::size_t n_left;
  int depth = 0;  // of nodes that run inside each other
};

// Parses a template whose nodes keep to the thread's budget. Throws TemplateLimit for one that is too long or too
// deeply nested, and what the parser throws.
jinja::program parse_bounded_template(const std::string& source);

}  // namespace winnow
