#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings.h"
#include "winnow/chat.h"
#include "winnow/generate.h"

namespace winnow::python {
namespace nb = nanobind;
using namespace nb::literals;

void bind_chat(nb::module_& module) {
  nb::class_<ChatToolCall>(module, "ChatToolCall")
      .def(
          "__init__",
          [](ChatToolCall* self, std::string id, std::string name, std::string arguments) {
            new (self) ChatToolCall{std::move(id), std::move(name), std::move(arguments)};
          },
          "id"_a, "name"_a, "arguments"_a)
      .def_ro("id", &ChatToolCall::id)
      .def_ro("name", &ChatToolCall::name)
      .def_ro("arguments", &ChatToolCall::arguments);

  nb::class_<ChatMessage>(module, "ChatMessage")
      .def(
          "__init__",
          [](ChatMessage* self, std::string role, std::string content, std::string reasoning,
             std::vector<ChatToolCall> tool_calls, std::string tool_call_id, std::string name) {
            new (self) ChatMessage{.role = std::move(role),
                                   .content = std::move(content),
                                   .reasoning = std::move(reasoning),
                                   .tool_calls = std::move(tool_calls),
                                   .tool_call_id = std::move(tool_call_id),
                                   .name = std::move(name)};
          },
          "role"_a, "content"_a, "reasoning"_a = "", "tool_calls"_a = std::vector<ChatToolCall>{},
          "tool_call_id"_a = "", "name"_a = "")
      .def_ro("content", &ChatMessage::content)
      .def_ro("reasoning", &ChatMessage::reasoning)
      .def_ro("tool_calls", &ChatMessage::tool_calls);

  nb::class_<ChatTool>(module, "ChatTool")
      .def(
          "__init__",
          [](ChatTool* self, std::string name, std::string description, std::string parameters) {
            new (self) ChatTool{std::move(name), std::move(description), std::move(parameters)};
          },
          "name"_a, "description"_a, "parameters"_a)
      .def_ro("name", &ChatTool::name);

  nb::enum_<ToolChoice>(module, "ToolChoice")
      .value("auto", ToolChoice::kAuto)
      .value("none", ToolChoice::kNone)
      .value("required", ToolChoice::kRequired);

  nb::class_<ChatOptions>(module, "ChatOptions")
      .def(nb::init<>())
      .def_rw("continues_last", &ChatOptions::continues_last)
      .def_rw("tools", &ChatOptions::tools)
      .def_rw("tool_choice", &ChatOptions::tool_choice)
      .def_rw("parallel_tool_calls", &ChatOptions::parallel_tool_calls)
      .def_rw("enable_thinking", &ChatOptions::enable_thinking)
      .def_rw("arguments", &ChatOptions::arguments);

  nb::class_<GrammarStart>(module, "GrammarStart");

  nb::class_<ChatPrompt>(module, "ChatPrompt")
      .def_ro("text", &ChatPrompt::text)
      .def_ro("grammar", &ChatPrompt::grammar)
      .def_ro("grammar_start", &ChatPrompt::grammar_start)
      .def_ro("stops", &ChatPrompt::stops)
      .def_ro("shown_tokens", &ChatPrompt::shown_tokens)
      .def("reader", [](const ChatPrompt& prompt) { return ChatReader(prompt.format); });

  nb::class_<ChatDelta>(module, "ChatDelta")
      .def_ro("reasoning", &ChatDelta::reasoning)
      .def_ro("content", &ChatDelta::content)
      .def_ro("tool_call", &ChatDelta::tool_call)
      .def_ro("id", &ChatDelta::id)
      .def_ro("name", &ChatDelta::name)
      .def_ro("arguments", &ChatDelta::arguments);

  nb::class_<ChatReader>(module, "ChatReader")
      .def(
          "add", [](ChatReader& reader, const std::string& text) { return reader.add(text); }, "text"_a)
      .def("finish", [](ChatReader& reader) { return reader.finish(); })
      .def_prop_ro("message", &ChatReader::message, nb::rv_policy::copy);

  module.def(
      "apply_chat_template",
      [](const Model& model, const std::vector<ChatMessage>& messages, const ChatOptions& options) {
        return model.apply_chat_template(messages, options);
      },
      "model"_a, "messages"_a, "options"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "split_chat",
      [](const Model& model, const std::string& system, const std::string& document, const std::string& question) {
        SplitPrompt split = split_chat(model, system, document, question);
        return std::pair{std::move(split.before), std::move(split.after)};
      },
      "model"_a, "system"_a, "document"_a, "question"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace winnow::python
