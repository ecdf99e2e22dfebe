// Chat templates: the texts that they render, and the limits on hostile ones.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/tiny_model.h"
#include "text/tokenizer.h"

namespace winnow::test {
namespace {

using Messages = std::vector<ChatMessage>;

std::shared_ptr<const Model> model_with(const std::string& source, const std::string& instead = "") {
  const TinyModel file({.chat_template = source});
  return Model::load(file.path(), {.chat_template = instead});
}

std::string rendered(const std::string& source, const Messages& messages = {{"user", "Hello"}}) {
  return model_with(source)->apply_chat_template(messages, true);
}

TEST(ChatTemplateTest, RendersMessages) {
  const auto model = model_with(kChatmlTemplate);
  const Messages messages = {{"system", "Be brief."}, {"user", "Hello"}};
  ASSERT_TRUE(model->has_chat_template());
  EXPECT_EQ(model->apply_chat_template(messages, true),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(model->apply_chat_template(messages, false),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n");
  const Messages zero = {{"user", std::string("a\0b", 3)}};
  EXPECT_NE(model->apply_chat_template(zero, false).find(zero[0].content), std::string::npos);
  expect_error(ErrorCode::kInvalidArgument, "at least one message", [&] { model->apply_chat_template({}, true); });
}

// The text that a family's template writes after an answer is one token, and generation ends at it.
TEST(ChatTemplateTest, ATurnEndsWithTheFamilysToken) {
  struct Family {
    const char* file;
    const char* end;
  };
  const Family families[] = {
      {"Qwen-Qwen3-0.6B", "<|im_end|>"},
      {"meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>"},
      {"meta-llama-Llama-3.2-3B-Instruct", "<|eot_id|>"},
      {"google-gemma-2-2b-it", "<end_of_turn>"},
      {"google-gemma-3", "<end_of_turn>"},
      {"google-gemma-4-31B-it", "<turn|>"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "</s>"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "</s>"},
      {"microsoft-Phi-3.5-mini-instruct", "<|end|>"},
      {"microsoft-phi-4", "<|im_end|>"},
      {"microsoft-Phi-4-mini", "<|end|>"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "<|im_end|>"},
      {"HuggingFaceTB-SmolLM2", "<|im_end|>"},
      {"HuggingFaceTB-SmolLM3-3B", "<|im_end|>"},
      {"ibm-granite-granite-3.3-2B-Instruct", "<|end_of_text|>"},
      {"LFM2-8B-A1B", "<|im_end|>"},
      {"Qwen3.5-4B", "<|im_end|>"},
      {"ibm-granite-granite-4.0", "<|end_of_text|>"},
      {"mistralai-Ministral-3-14B-Reasoning-2512", "</s>"},
      {"openai-gpt-oss-120b", "<|end|>"},
  };
  const Messages messages = {{"user", "Who?"}, {"assistant", "tea"}, {"user", "When?"}};
  for (const auto& [file, end] : families) {
    SCOPED_TRACE(file);
    const std::string name = std::string("/") + file + ".jinja";
    const std::string own = read_bytes(WINNOW_OWN_TEMPLATES + name);
    TinyModelOptions options{.chat_template = own.empty() ? read_bytes(WINNOW_TEMPLATES + name) : own};
    if (std::string(end) != "</s>") options.control_tokens = {end};
    const auto model = Model::load(TinyModel(options).path());
    const std::string text = model->apply_chat_template(messages, true);
    const std::size_t at = text.rfind("tea");
    ASSERT_NE(at, std::string::npos) << text;
    const std::size_t mark = text.find_first_not_of(" \n", at + 3);
    const std::vector<Token> rest = model->tokenize(text.substr(mark), false, true);
    ASSERT_EQ(model->token_text(rest.front(), true), end) << text;
    EXPECT_TRUE(model->is_end_of_generation(rest.front()));
  }
  // gpt-oss ends tool calls with another token, so <|end|> only separates the parts of one answer.
  const auto harmony = Model::load(TinyModel({.control_tokens = {"<|end|>", "<|call|>", "<|return|>"}}).path());
  const auto is_end = [&](const char* text) {
    return harmony->is_end_of_generation(harmony->tokenize(text, false, true).front());
  };
  EXPECT_FALSE(is_end("<|end|>"));
  EXPECT_TRUE(is_end("<|call|>"));
  EXPECT_TRUE(is_end("<|return|>"));
}

TEST(ChatTemplateTest, OneInsteadOfTheFiles) {
  const Messages messages = {{"user", "Hello"}};
  EXPECT_EQ(model_with("", "{{ messages[0].content }}!")->apply_chat_template(messages, true), "Hello!");
  EXPECT_EQ(model_with("{{ 1 }}", "chatml")->apply_chat_template(messages, true), rendered(kChatmlTemplate));
  expect_error(ErrorCode::kUnsupported, "'llama9' is not a Jinja template", [] { model_with("", "llama9"); });
  expect_error(ErrorCode::kUnsupported, "cannot be read", [] { model_with("", "{% if %}"); });
}

TEST(ChatTemplateTest, WithoutOneAndWithABrokenOne) {
  const auto none = model_with("");
  EXPECT_FALSE(none->has_chat_template());
  const Messages messages = {{"user", "Hello"}};
  expect_error(ErrorCode::kUnsupported, "has no chat template", [&] { none->apply_chat_template(messages, true); });
  // A file loads whatever its template is; using a broken template is an error.
  const auto broken = model_with("{% for m in messages %}");
  EXPECT_TRUE(broken->has_chat_template());
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::kUnsupported, "cannot be read", [&] { broken->apply_chat_template(messages, true); });
  }
  expect_error(ErrorCode::kUnsupported, "only cats",
               [] { rendered("{% if messages[0].role == 'user' %}{{ raise_exception('only cats') }}{% endif %}"); });
}

TEST(ChatTemplateTest, ThousandsOfMessages) {
  Messages messages;
  for (int i = 0; i < 4000; ++i) messages.push_back({i % 2 == 0 ? "user" : "assistant", std::to_string(i)});
  const std::string text = rendered(kChatmlTemplate, messages);
  EXPECT_NE(text.find("\n3999<|im_end|>"), std::string::npos);
}

TEST(ChatTemplateTest, LongMessages) {
  const Messages messages = {{"user", std::string(8 << 20, 'x')}};
  EXPECT_GT(rendered(kChatmlTemplate, messages).size(), messages[0].content.size());
}

std::string repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

// Each of them would take hours, all memory or the whole stack.
TEST(ChatTemplateTest, HostileTemplatesAreRefused) {
  const struct {
    std::string source, reason;
  } kCases[] = {
      {"{% for i in range(1000000000) %}{% endfor %}", "range"},
      {"{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", "too many steps"},
      {repeated("{% for i in range(90) %}", 20) + "x" + repeated("{% endfor %}", 20), "too many steps"},
      {"{% for i in messages if range(90000)|list and range(90000)|list %}{% for j in range(90000) if j in "
       "range(90000) %}{% endfor %}{% endfor %}",
       "too many steps"},
      {"{{ 'x' * 9000000000 }}", "repeats a text"},
      {"{{ 90000 * ('x' * 90000) }}", "text of more than"},
      {"{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
       "steps"},
      {"{% set x = 'x' * 90000 %}{% set x = x ~ x ~ x %}{% set x = x ~ x ~ x %}{{ x|replace('x', x) }}",
       "text of more than"},
      {"{% set x = 'x' * 90000 %}{% set x = x ~ x ~ x %}{% set x = x ~ x ~ x %}{{ x.replace('', x) }}",
       "text of more than"},
      {"{% set x = 'x' * 90000 %}{% set x = x ~ x ~ x %}{% set x = x ~ x ~ x %}{{ range(1000)|join(x) }}",
       "text of more than"},
      {"{% set x = 'x ' * 90000 %}{% set x = x ~ x %}{{ x.split(' ') }}", "parts"},
      {"{{ 'a\n' * 100|indent(1000000) }}", "indents by more"},
      {"{{ messages|tojson(indent=1000000000) }}", "indents by more"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
       "list"},
      {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x|tojson }}", "list"},
      {"{% set x = [1] %}{% for i in range(60) %}{{ x.append(x) }}{% endfor %}{{ x|tojson }}", "list"},
      {"{% set x = [1] %}{{ x|append(x) }}{{ x|tojson }}", "list"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"},
      {"{% macro f() %}{% if true %}{% for i in [1] %}{{ 'x' ~ f() }}{% endfor %}{% endif %}{% endmacro %}{{ f() }}",
       "nested too deeply"},
      {"{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}", "brackets"},
      {"{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}", "brackets"},
      {"{{ " + repeated("not ", 5000) + "1 }}", "expression of more than"},
      {"{{ 1" + repeated(" ~ 1", 50000) + " }}", "expression of more than"},
      {"{{ 1" + repeated("|abs", 50000) + " }}", "expression of more than"},
      {repeated("{% if true %}", 10000) + repeated("{% endif %}", 10000), "nested deeper"},
      {repeated("{% set x %}", 10000) + repeated("{% endset %}", 10000), "nested deeper"},
      {repeated("{% if true %}{% endgeneration %}", 5000), "nested deeper"},
      {"{% if true %}" + repeated("{% elif true %}", 10000) + "{% endif %}", "nested deeper"},
      {std::string(1 << 20, 'x') + "{{ 1 }}", "KiB"},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.source.substr(0, 100));
    expect_error(ErrorCode::kUnsupported, one.reason, [&] { rendered(one.source); });
  }
}

TEST(ChatTemplateTest, CallersMayAllowFewerSteps) {
  const TinyModel file({.n_layer = 1});
  const Tokenizer tokenizer(file.path());
  const std::string source = "{% for m in messages %}{% for i in range(300) %}.{% endfor %}{{ m.content }}{% endfor %}";
  const Messages messages = {{"user", "Hello"}};
  EXPECT_EQ(ChatTemplate(tokenizer.model(), source).render(messages, true), std::string(300, '.') + "Hello");
  expect_error(ErrorCode::kUnsupported, "too many steps",
               [&] { ChatTemplate(tokenizer.model(), source, {.trial = 1'000}); });
  const ChatTemplate one(tokenizer.model(), source, {.rendering = 1'000});
  expect_error(ErrorCode::kUnsupported, "too many steps", [&] { one.render(messages, true); });
}

// libllama-common adapts messages with roles that a template does not know.
TEST(ChatTemplateTest, RolesThatATemplateLacks) {
  const std::string no_system =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "[{{ m.role }}] {{ m.content }}\n{% endfor %}";
  const std::string text = rendered(no_system, {{"system", "Be brief."}, {"user", "Hello"}});
  EXPECT_NE(text.find("Be brief."), std::string::npos) << text;
  EXPECT_NE(text.find("[user]"), std::string::npos);
  EXPECT_EQ(rendered("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", {{"developer", "x"}}),
            "[system]x");
}

}  // namespace
}  // namespace winnow::test
