// Bounds for Jinja templates, which come with model files and are foreign code; libllama-common's interpreter has none.
//
// A parsed template is a tree whose nodes run themselves. Here each node has one more task: to count its step, its
// depth and the size of its result before the next one runs. Used by chat_template.cc alone.
#pragma once

#include <jinja/runtime.h>

#include <cstddef>
#include <string>

namespace winnow {

// The exception for a template beyond its bounds. The interpreter passes it on, since it is not a std::exception.
// `reason` ends a sentence that begins with "the chat template".
struct TemplateLimit {
  std::string reason;
};

// The steps that the calling thread's templates may take while the budget exists. A thread has one at a time.
class TemplateBudget {
 public:
  explicit TemplateBudget(std::size_t n_steps);
  ~TemplateBudget();
  TemplateBudget(const TemplateBudget&) = delete;
  TemplateBudget& operator=(const TemplateBudget&) = delete;

  // Takes steps from the budget. Throws TemplateLimit if fewer are left.
  void spend(std::size_t n_steps);

  std::size_t n_left;  // steps
  int depth = 0;       // number of nodes that run inside each other
};

// Returns a parsed template whose nodes keep to the thread's budget. Throws TemplateLimit for one that is too long or
// too deeply nested, and the parser's own exceptions.
jinja::program parse_bounded_template(const std::string& source);

}  // namespace winnow
