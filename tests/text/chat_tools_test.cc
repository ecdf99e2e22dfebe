// Tool calls and thinking with the templates of well-known models: answers are drawn at random under the grammar that a
// template's format asks for, and read again.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "expect_error.h"
#include "model/tiny_model.h"
#include "sanitizers.h"
#include "text/tool_schemas.h"
#include "winnow/chat.h"

namespace winnow::test {
namespace {

using Json = nlohmann::json;

// A template of each family, by its file in libllama's sources.
const std::map<std::string, std::string> kFamilies = {
    {"Qwen3", "Qwen-Qwen3-0.6B"},
    {"Qwen2.5", "Qwen-Qwen2.5-7B-Instruct"},
    {"Llama 3.1", "meta-llama-Llama-3.1-8B-Instruct"},
    {"Llama 3.2", "meta-llama-Llama-3.2-3B-Instruct"},
    {"Mistral Nemo", "mistralai-Mistral-Nemo-Instruct-2407"},
    {"gpt-oss", "openai-gpt-oss-120b"},
    {"Hermes 3", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use"},
    {"Granite", "ibm-granite-granite-4.0"},
};
// Families whose calls have free parts (names of calls, texts without quotes), in which a model with random logits
// never ends.
const std::map<std::string, std::string> kFreeFamilies = {
    {"Qwen3.5", "Qwen3.5-4B"},
    {"Qwen3-Coder", "Qwen3-Coder"},
    {"Gemma 4", "google-gemma-4-31B-it"},
    {"Mistral Small", "Mistral-Small-3.2-24B-Instruct-2506"},
    {"LFM2", "LFM2-8B-A1B"},
};

const std::vector<ChatTool> kTools = {
    {"get_weather", "The weather of a city.",
     R"({"type":"object","properties":{"city":{"type":"string","enum":["Oslo","Rome"]},"hourly":{"type":"boolean"}},)"
     R"("required":["city","hourly"],"additionalProperties":false})"},
    {"get_time", "The time.",
     R"({"type":"object","properties":{"zone":{"type":"string","enum":["UTC","CET"]}},"required":["zone"]})"}};

std::shared_ptr<const Model> family_model(const std::string& file,
                                          const std::vector<std::string>& control_tokens = {}) {
  const std::string source = read_bytes(std::string(WINNOW_TEMPLATES) + "/" + file + ".jinja");
  return Model::load(TinyModel({.control_tokens = control_tokens, .chat_template = source}).path());
}

constexpr Token kFirstByte = 3;  // of the tiny model

struct Answer {
  ChatMessage whole, streamed;
  std::string text;
  bool has_ended = false;
};

// Appends a delta of the reader to a message.
void put(const ChatDelta& delta, ChatMessage& message) {
  message.reasoning += delta.reasoning;
  message.content += delta.content;
  if (delta.tool_call < 0) return;
  if (!delta.name.empty()) message.tool_calls.push_back({delta.id, delta.name, ""});
  ASSERT_EQ(message.tool_calls.size(), static_cast<std::size_t>(delta.tool_call) + 1);
  message.tool_calls.back().arguments += delta.arguments;
}

// Draws an answer that begins with `forced` and goes on at random.
Answer answer(const std::shared_ptr<const Model>& model, const ChatPrompt& prompt, std::uint32_t seed,
              const std::string& forced = "", const std::vector<std::string>& marks = {}) {
  Answer made;
  Sampler sampler(
      model,
      {.temperature = 1, .top_k = 0, .seed = seed, .grammar = prompt.grammar, .grammar_start = prompt.grammar_start});
  ChatReader reader(prompt.format);
  std::mt19937 random(seed);
  std::normal_distribution<float> logit(0, 1);
  // Bytes are forced one by one, because the tiny model's tokenizer writes some characters differently. Only marks that
  // are tokens are forced whole.
  std::vector<Token> begin;
  for (std::size_t i = 0; i < forced.size();) {
    const auto mark = std::find_if(marks.begin(), marks.end(),
                                   [&](const std::string& one) { return forced.compare(i, one.size(), one) == 0; });
    if (mark == marks.end()) {
      begin.push_back(kFirstByte + static_cast<unsigned char>(forced[i++]));
    } else {
      begin.push_back(model->tokenize(*mark, false, true).front());
      i += mark->size();
    }
  }
  std::vector<float> logits(static_cast<std::size_t>(model->info().n_vocab));
  // Thoughts are ended as soon as they have begun.
  const GrammarStart& start = prompt.grammar_start;
  const std::vector<Token> ends = start.thinking_ends.empty() || start.thinking_begin.empty()
                                      ? std::vector<Token>()
                                      : model->tokenize(start.thinking_ends.back(), false, true);
  std::size_t n_ended = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    for (float& one : logits) one = logit(random);
    const std::string all = start.prefix + made.text;
    const std::size_t thoughts = ends.empty() ? std::string::npos : all.rfind(start.thinking_begin);
    const bool thinks =
        thoughts != std::string::npos && all.find(start.thinking_ends.back(), thoughts) == std::string::npos;
    // After 200 tokens the answer ends as soon as the grammar allows it; until then it may make further calls.
    for (Token token = 0; i > 200 && token < model->info().n_vocab; ++token) {
      if (model->is_end_of_generation(token)) logits[static_cast<std::size_t>(token)] = 100;
    }
    if (i < begin.size()) {
      logits[static_cast<std::size_t>(begin[i])] = 1000;
    } else if (thinks) {
      logits[static_cast<std::size_t>(ends[n_ended++ % ends.size()])] = 1000;
    } else {
      n_ended = 0;
    }
    const Token token = sampler.sample(logits);
    made.has_ended = model->is_end_of_generation(token);
    if (made.has_ended) break;
    const std::string text = model->token_text(token, true);
    made.text += text;
    for (const ChatDelta& delta : reader.add(text)) put(delta, made.streamed);
  }
  for (const ChatDelta& delta : reader.finish()) put(delta, made.streamed);
  made.whole = reader.message();
  return made;
}

void expect_calls(const Answer& made) {
  EXPECT_TRUE(made.has_ended) << made.text.substr(0, 300);
  ASSERT_FALSE(made.whole.tool_calls.empty()) << made.text.substr(0, 300);
  ASSERT_EQ(made.streamed.tool_calls.size(), made.whole.tool_calls.size());
  EXPECT_EQ(made.streamed.content, made.whole.content);
  EXPECT_EQ(made.streamed.reasoning, made.whole.reasoning);
  for (std::size_t i = 0; i < made.whole.tool_calls.size(); ++i) {
    const ChatToolCall& call = made.whole.tool_calls[i];
    EXPECT_EQ(made.streamed.tool_calls[i].arguments, call.arguments);
    EXPECT_EQ(made.streamed.tool_calls[i].name, call.name);
    EXPECT_FALSE(call.id.empty());
    Json arguments = Json::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << call.arguments;
    if (call.name == "get_weather") {
      EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome") << call.arguments;
      EXPECT_TRUE(arguments["hourly"].is_boolean()) << call.arguments;
    } else {
      EXPECT_EQ(call.name, "get_time");
      EXPECT_TRUE(arguments["zone"] == "UTC" || arguments["zone"] == "CET") << call.arguments;
    }
  }
}

TEST(ChatToolsTest, RequiredCallsFollowTheirSchemas) {
  for (const auto& [family, file] : kFamilies) {
    SCOPED_TRACE(family);
    const auto model = family_model(file);
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    const ChatPrompt prompt = model->apply_chat_template(
        messages, {.tools = kTools, .tool_choice = ToolChoice::kRequired, .enable_thinking = false});
    EXPECT_NE(prompt.text.find("The weather of a city."), std::string::npos);
    ASSERT_FALSE(prompt.grammar.empty());
    EXPECT_FALSE(prompt.grammar_start.is_lazy);
    std::set<std::string> names;
    for (std::uint32_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(seed);
      const Answer made = answer(model, prompt, seed);
      expect_calls(made);
      for (const ChatToolCall& call : made.whole.tool_calls) names.insert(call.name);
    }
    EXPECT_EQ(names.size(), 2U);
  }
}

// Templates of libllama's package that know no tools; all others know them.
const std::set<std::string> kWithoutTools = {"HuggingFaceTB-SmolLM3-3B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
                                             "google-gemma-2-2b-it",     "ibm-granite-granite-3.3-2B-Instruct",
                                             "llama-cpp-rwkv-world",     "microsoft-Phi-3.5-mini-instruct"};
// Templates whose calls begin with patterns instead of words, each with a text at which the grammar begins.
const std::map<std::string, std::string> kBeginsOfCalls = {
    {"openai-gpt-oss-120b", "<|channel|>commentary to=functions"},
    {"muse-glimmer", " to=x<|message|>"},
    {"meetkai-functionary-medium-v3.2", "get_weather"},
    {"meta-llama-Llama-3.1-8B-Instruct", R"({"name": "get_weather)"},
    {"meta-llama-Llama-3.2-3B-Instruct", R"({"name": "get_weather)"},
    {"meta-llama-Llama-3.3-70B-Instruct", R"({"name": "get_weather)"},
};

std::vector<std::string> templates_with_tools() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(WINNOW_TEMPLATES)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".jinja" && !kWithoutTools.contains(name)) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns all templates, or every fourth with sanitizers, which find errors only in the code that reads the formats.
std::vector<std::string> templates_to_try() {
  std::vector<std::string> files = templates_with_tools();
  EXPECT_GE(files.size(), 60U);
  if (kHasSanitizers) {
    std::size_t n = 0;
    std::erase_if(files, [&](const std::string&) { return n++ % 4 != 0; });
  }
  return files;
}

bool begins_in_thoughts(const GrammarStart& start) {
  return !start.thinking_begin.empty() && start.prefix.find(start.thinking_begin) != std::string::npos;
}

// Covers forced, named and chosen calls, one or several, with and without thoughts.
TEST(ChatToolsTest, EveryTemplate) {
  struct Case {
    const char* name;
    ToolChoice choice;
    std::optional<bool> is_parallel;
    bool thinks = false, separates = true, is_named = false;
  };
  const std::vector<Case> cases = {
      {"required", ToolChoice::kRequired, std::nullopt},
      {"required, parallel, thoughts in the text", ToolChoice::kRequired, true, true, false},
      {"named, thoughts", ToolChoice::kRequired, false, true, true, true},
      {"required, one", ToolChoice::kRequired, false},
      {"chosen", ToolChoice::kAuto, std::nullopt},
      {"chosen, one, thoughts", ToolChoice::kAuto, false, true},
      {"chosen, parallel, thoughts in the text", ToolChoice::kAuto, true, true, false}};
  for (const std::string& file : templates_to_try()) {
    const auto model = family_model(file);
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    for (const Case& one : cases) {
      SCOPED_TRACE(file + ": " + one.name);
      ChatOptions options{.tools = kTools,
                          .tool_choice = one.choice,
                          .parallel_tool_calls = one.is_parallel,
                          .enable_thinking = one.thinks,
                          .separates_thinking = one.separates};
      if (one.is_named) options.tools.resize(1);
      const ChatPrompt prompt = model->apply_chat_template(messages, options);
      const GrammarStart& start = prompt.grammar_start;
      ASSERT_FALSE(prompt.grammar.empty());
      EXPECT_EQ(start.is_lazy, one.choice == ToolChoice::kAuto);
      EXPECT_NE(prompt.text.find("The weather of a city."), std::string::npos);
      std::string begin;
      if (start.is_lazy) {
        if (begins_in_thoughts(start)) begin = start.thinking_ends.back();
        const auto known = kBeginsOfCalls.find(file);
        ASSERT_TRUE(known != kBeginsOfCalls.end() || !start.words.empty());
        begin += known != kBeginsOfCalls.end() ? known->second : start.words.front();
      }
      for (std::uint32_t seed = 1; seed <= 2; ++seed) {
        const Answer made = answer(model, prompt, seed, begin);
        expect_calls(made);
        EXPECT_TRUE(one.is_parallel != false || made.whole.tool_calls.size() == 1) << made.text;
      }
    }
  }
}

// libllama-common names its parsers' rules after tools and arguments and replaces all characters but letters and digits
// by hyphens. Names that differ only in such characters must still be distinguished from each other and from its own
// names.
TEST(ChatToolsTest, NamesThatDifferInTheirSignsAlone) {
  const std::string one = R"({"type":"object","properties":{"x":{"type":"string","enum":["one"]}},"required":["x"]})";
  const std::string two = R"({"type":"object","properties":{"x":{"type":"string","enum":["two"]}},"required":["x"]})";
  const std::string several = R"({"type":"object","properties":{"a_b":{"type":"string","enum":["three"]},)"
                              R"("a-b":{"type":"string","enum":["four"]},"城市":{"type":"string","enum":["five"]},)"
                              R"("日期":{"type":"boolean"}},"required":["a_b","a-b","城市","日期"]})";
  const std::vector<ChatTool> tools = {
      {"get_user", "First.", one}, {"get-user", "Second.", two}, {"call", "Third.", several}};
  const std::map<std::string, Json> arguments = {{"get_user", {{"x", "one"}}},
                                                 {"get-user", {{"x", "two"}}},
                                                 {"call", {{"a_b", "three"}, {"a-b", "four"}, {"城市", "five"}}}};
  const std::vector<ChatMessage> messages = {{"user", "Who is it?"}};
  for (const std::string& file : templates_to_try()) {
    const auto model = family_model(file);
    std::set<std::string> names;
    for (const ToolChoice choice : {ToolChoice::kRequired, ToolChoice::kAuto}) {
      SCOPED_TRACE(file + (choice == ToolChoice::kAuto ? ": chosen" : ": required"));
      if (choice == ToolChoice::kAuto && kBeginsOfCalls.contains(file)) continue;
      const ChatPrompt prompt = model->apply_chat_template(
          messages, {.tools = tools, .tool_choice = choice, .parallel_tool_calls = false, .enable_thinking = false});
      std::string begin;
      if (choice == ToolChoice::kAuto) {
        if (begins_in_thoughts(prompt.grammar_start)) begin = prompt.grammar_start.thinking_ends.back();
        ASSERT_FALSE(prompt.grammar_start.words.empty());
        begin += prompt.grammar_start.words.front();
      }
      for (std::uint32_t seed = 1; seed <= 12 && (seed == 1 || names.size() < tools.size()); ++seed) {
        const Answer made = answer(model, prompt, seed, begin);
        ASSERT_EQ(made.whole.tool_calls.size(), 1U) << made.text;
        const ChatToolCall& call = made.whole.tool_calls[0];
        names.insert(call.name);
        ASSERT_TRUE(arguments.contains(call.name)) << call.name;
        Json given = Json::parse(call.arguments, nullptr, false);
        ASSERT_TRUE(given.is_object()) << made.text;
        if (call.name == "call") {
          EXPECT_TRUE(given["日期"].is_boolean()) << made.text;
          given.erase("日期");
        }
        EXPECT_EQ(given, arguments.at(call.name)) << made.text;
      }
    }
    EXPECT_EQ(names.size(), tools.size()) << file;
  }
}

// Tests templates whose marks of calls and thoughts are tokens of the model, as is usual.
TEST(ChatToolsTest, MarksMayBeTokens) {
  int n_files = 0;
  for (const std::string& file : templates_to_try()) {
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    ChatOptions options{.tools = kTools, .parallel_tool_calls = false, .enable_thinking = false};
    std::vector<std::string> marks = family_model(file)->apply_chat_template(messages, options).shown_tokens;
    std::erase_if(marks, [](const std::string& mark) { return mark.size() < 3; });
    std::sort(marks.begin(), marks.end(), std::greater<>());  // longer marks before their prefixes
    marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
    if (marks.empty() || kBeginsOfCalls.contains(file)) continue;
    ++n_files;
    const auto model = family_model(file, marks);
    for (const ToolChoice choice : {ToolChoice::kRequired, ToolChoice::kAuto}) {
      SCOPED_TRACE(file + (choice == ToolChoice::kAuto ? ": chosen" : ": required"));
      options.tool_choice = choice;
      const ChatPrompt prompt = model->apply_chat_template(messages, options);
      std::string begin;
      if (choice == ToolChoice::kAuto) {
        if (begins_in_thoughts(prompt.grammar_start)) begin = prompt.grammar_start.thinking_ends.back();
        begin += prompt.grammar_start.words.front();
      }
      const Answer made = answer(model, prompt, 1, begin, marks);
      expect_calls(made);
      EXPECT_EQ(made.whole.tool_calls.size(), 1U);
    }
  }
  EXPECT_GE(n_files, kHasSanitizers ? 7 : 30);
}

TEST(ChatToolsTest, TemplatesWithoutTools) {
  for (const std::string& file : kWithoutTools) {
    SCOPED_TRACE(file);
    const auto model = family_model(file);
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    for (const ToolChoice choice : {ToolChoice::kRequired, ToolChoice::kAuto}) {
      expect_error(ErrorCode::kUnsupported, "does not support tools",
                   [&] { model->apply_chat_template(messages, {.tools = kTools, .tool_choice = choice}); });
    }
  }
}

// Templates know few kinds of schemas. A schema that a template cannot show is shown in a simpler form, but calls still
// have to follow the schema itself.
TEST(ChatToolsTest, SchemasThatTemplatesDoNotKnow) {
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  for (const char* schema :
       {R"({"type":"object","properties":{"a":true,"b":{},"c":{"enum":["a",1]}},"required":["a"]})",
        R"({"type":"object","properties":{"c":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"of c"}}})",
        R"({"type":"object","properties":{"d":{"$ref":"#/$defs/X"},"e":{"type":["string","null"]}},)"
        R"("$defs":{"X":{"type":"string"}}})",
        R"({})", R"(true)", R"({"type":"object","properties":{"d":{"type":"array"},"g":{"properties":{"h":{}}}}})"}) {
    for (const char* file : {"Qwen-Qwen3-0.6B", "ByteDance-Seed-OSS", "GigaChat3-10B-A1.8B", "Apertus-8B-Instruct"}) {
      SCOPED_TRACE(std::string(file) + ": " + schema);
      const ChatPrompt prompt = family_model(file)->apply_chat_template(
          messages, {.tools = {{"a_tool", "Does it.", schema}}, .tool_choice = ToolChoice::kRequired});
      EXPECT_NE(prompt.text.find("a_tool"), std::string::npos);
    }
  }
}

// Tests tools like those of real clients: a catalog of a hundred, texts with large bounds, long names.
TEST(ChatToolsTest, LargeCatalogs) {
  const auto model = family_model("Qwen-Qwen3-0.6B");
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  std::vector<ChatTool> tools;
  for (int i = 0; i < 100; ++i) {
    Json properties = Json::object();
    for (int k = 0; k < 12; ++k) {
      properties["text_" + std::to_string(k)] = {{"type", "string"}, {"enum", {"one", "two", std::to_string(i)}}};
    }
    const Json schema = {{"type", "object"}, {"properties", properties}, {"required", {"text_0"}}};
    tools.push_back({"tool_" + std::to_string(i) + std::string(110, 'x'), "Does it.", schema.dump()});
  }
  Json properties = Json::object();
  for (int k = 0; k < 39; ++k) properties["p" + std::to_string(k)] = {{"type", "string"}, {"maxLength", 255}};
  properties["script"] = {{"type", "string"}, {"maxLength", 524288}};
  tools.push_back({"workflow", "", Json{{"type", "object"}, {"properties", properties}}.dump()});
  for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired}) {
    const ChatPrompt prompt =
        model->apply_chat_template(messages, {.tools = tools, .tool_choice = choice, .enable_thinking = false});
    EXPECT_TRUE(prompt.warnings.empty());
    Sampler sampler(model, {.grammar = prompt.grammar, .grammar_start = prompt.grammar_start});
  }
  expect_error(ErrorCode::kInvalidArgument, "the parameters of tool 'a' cannot be used: 'enum' must be a list", [&] {
    model->apply_chat_template(
        messages, {.tools = {{"a", "", R"({"type":"object","properties":{"unit":{"type":"string","enum":[]}}})"}},
                   .tool_choice = ToolChoice::kRequired});
  });
  // A constraint that cannot be enforced is left out with a warning.
  const ChatPrompt prompt = model->apply_chat_template(
      messages, {.tools = {{"a", "", R"({"type":"object","properties":{"p":{"type":"string","pattern":"(a)\\1"}}})"}},
                 .tool_choice = ToolChoice::kRequired});
  ASSERT_EQ(prompt.warnings.size(), 1U);
  EXPECT_NE(prompt.warnings[0].find("tool 'a'"), std::string::npos) << prompt.warnings[0];
  EXPECT_NE(prompt.warnings[0].find("parameters.p"), std::string::npos) << prompt.warnings[0];
}

// libllama-common's std::regex recurses once for each character of a property's name, and its time for an object grows
// with the third power of the number of its properties.
TEST(ChatToolsTest, PropertiesAreBounded) {
  const auto model = family_model("Qwen-Qwen3-0.6B");
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  const auto apply = [&](const std::vector<Json>& schemas) {
    std::vector<ChatTool> tools;
    for (const Json& schema : schemas) tools.push_back({"t" + std::to_string(tools.size()), "", schema.dump()});
    return model->apply_chat_template(messages, {.tools = tools, .tool_choice = ToolChoice::kRequired});
  };
  const auto expect_refused = [&](const std::string& part, const std::vector<Json>& schemas) {
    expect_error(ErrorCode::kInvalidArgument, part, [&] { apply(schemas); });
  };
  const auto with_name = [](const std::string& name) {
    const Json properties = {{name, {{"type", "string"}}}};
    return Json{{"properties", properties}};
  };
  EXPECT_FALSE(apply({with_name(std::string(256, '_'))}).grammar.empty());
  for (const std::size_t n_bytes : {std::size_t{257}, std::size_t{1} << 20}) {
    const std::string name(n_bytes, '_');
    const Json list = {{"type", "array"}, {"items", with_name(name)}};
    const Json inner = {{"type", "object"}, {"properties", {{"a", list}}}};
    const Json unnamed = {{"type", "object"}, {"required", Json::array({name})}};
    expect_refused("tool 't0' cannot be used: the name of a property has", {with_name(name)});
    expect_refused("(at parameters.a)", {inner});
    expect_refused("(at parameters)", {unnamed});
  }
  const auto with_properties = [](int n) {
    Json properties = Json::object();
    for (int i = 0; i < n; ++i) properties["p" + std::to_string(i)] = true;
    return Json{{"properties", properties}};
  };
  EXPECT_FALSE(apply(std::vector<Json>(10, with_properties(100))).grammar.empty());
  expect_refused("tool 't0' cannot be used: with its 501 properties", {with_properties(501)});
  expect_refused("tool 't15' cannot be used: with its 200 properties", std::vector<Json>(20, with_properties(200)));
}

// A reference by name means the schema of its own tool.
TEST(ChatToolsTest, ReferencesAreLookedUpInTheirTool) {
  const auto tool = [](const std::string& name) {
    const Json properties = {{name, {{"type", "string"}}}};
    const Json target = {{"$anchor", "it"}, {"properties", properties}};
    const Json schema = {{"$ref", "#it"}, {"$defs", {{"a", target}}}};
    return ChatTool{name, "", schema.dump()};
  };
  for (const ChatTool& plain : with_plain_schemas({tool("first"), tool("second"), tool("third")}, SchemaUse::kParser)) {
    const Json properties = Json::parse(plain.parameters)["properties"];
    EXPECT_EQ(properties, Json({{plain.name, {{"type", "string"}}}}));
  }
}

// libllama-common does not make Gemma's own form of arguments follow their schema, but the calls can still be read.
TEST(ChatToolsTest, Gemma) {
  const auto model = family_model("google-gemma-4-31B-it");
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  const ChatPrompt prompt = model->apply_chat_template(messages, {.tools = kTools, .enable_thinking = false});
  ChatReader reader(prompt.format);
  reader.add("<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>,hourly:true}<tool_call|>");
  reader.finish();
  ASSERT_EQ(reader.message().tool_calls.size(), 1U);
  EXPECT_EQ(reader.message().tool_calls[0].name, "get_weather");
  EXPECT_EQ(Json::parse(reader.message().tool_calls[0].arguments), Json({{"city", "Oslo"}, {"hourly", true}}));
}

// A call of the model and the tool's answer appear in the next prompt.
TEST(ChatToolsTest, AnswersOfTools) {
  std::map<std::string, std::string> families = kFamilies;
  families.insert(kFreeFamilies.begin(), kFreeFamilies.end());
  for (const auto& [family, file] : families) {
    SCOPED_TRACE(family);
    const auto model = family_model(file);
    std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    messages.push_back({.role = "assistant",
                        .content = "",
                        .tool_calls = {{"abcDEF123", "get_weather", R"({"city":"Oslo","hourly":true})"}}});
    messages.push_back(
        {.role = "tool", .content = R"({"degrees":-7})", .tool_call_id = "abcDEF123", .name = "get_weather"});
    const std::string text = model->apply_chat_template(messages, {.tools = kTools}).text;
    EXPECT_NE(text.find("Oslo"), std::string::npos) << text;
    EXPECT_NE(text.find("-7"), std::string::npos) << text;
  }
}

// The grammar applies from the text that begins a call; any text may precede it.
TEST(ChatToolsTest, CallsThatTheModelChooses) {
  int n_lazy = 0;
  for (const auto& [family, file] : kFamilies) {
    SCOPED_TRACE(family);
    const auto model = family_model(file);
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
    const ChatPrompt prompt = model->apply_chat_template(messages, {.tools = kTools, .enable_thinking = false});
    if (prompt.grammar.empty() || prompt.grammar_start.words.empty()) continue;
    EXPECT_TRUE(prompt.grammar_start.is_lazy);
    ++n_lazy;
    const Answer made = answer(model, prompt, 1, prompt.grammar_start.words.front());
    expect_calls(made);
    const ChatPrompt none = model->apply_chat_template(
        messages, {.tools = kTools, .tool_choice = ToolChoice::kNone, .enable_thinking = false});
    EXPECT_TRUE(none.grammar.empty());
  }
  EXPECT_GE(n_lazy, 4);
}

// A call of a tool without parameters may be nothing but its name.
TEST(ChatToolsTest, ToolsWithoutParameters) {
  std::vector<ChatTool> tools = kTools;
  tools.push_back({"get_date", "The date.", R"({"type":"object","properties":{}})"});
  const std::vector<ChatMessage> messages = {{"user", "What day is it?"}};
  for (const std::string& file : templates_to_try()) {
    SCOPED_TRACE(file);
    const auto model = family_model(file);
    const ChatPrompt prompt = model->apply_chat_template(
        messages,
        {.tools = tools, .tool_choice = ToolChoice::kRequired, .parallel_tool_calls = false, .enable_thinking = false});
    std::set<std::string> names;
    for (std::uint32_t seed = 1; seed <= 30 && names.size() < tools.size(); ++seed) {
      const Answer made = answer(model, prompt, seed);
      ASSERT_EQ(made.whole.tool_calls.size(), 1U) << made.text;
      names.insert(made.whole.tool_calls[0].name);
    }
    EXPECT_EQ(names.size(), tools.size());
  }
}

// LFM2's calls quote texts, so that its parser has to know whether an argument may be anything else.
TEST(ChatToolsTest, ArgumentsOfSeveralTypesInPythonsForm) {
  const std::vector<ChatTool> tools = {
      {"find", "Finds it.",
       R"({"type":"object","properties":{"where":{"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]}},)"
       R"("required":["where"]})"}};
  const std::vector<ChatMessage> messages = {{"user", "Where is it?"}};
  for (const char* file : {"LFM2-8B-A1B", "LFM2.5-Instruct", "LFM2.5-8B-A1B"}) {
    SCOPED_TRACE(file);
    const auto model = family_model(file);
    const ChatPrompt prompt = model->apply_chat_template(
        messages,
        {.tools = tools, .tool_choice = ToolChoice::kRequired, .parallel_tool_calls = false, .enable_thinking = false});
    std::set<std::string> types;
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
      const Answer made = answer(model, prompt, seed);
      ASSERT_EQ(made.whole.tool_calls.size(), 1U) << made.text;
      const Json arguments = Json::parse(made.whole.tool_calls[0].arguments, nullptr, false);
      ASSERT_TRUE(arguments.is_object() && arguments.contains("where")) << made.text;
      types.insert(arguments["where"].type_name());
    }
    EXPECT_EQ(types, (std::set<std::string>{"null", "string"}));
  }
}

TEST(ChatToolsTest, CallsWithIds) {
  const auto model = family_model(kFreeFamilies.at("Mistral Small"));
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  const std::string call = R"([TOOL_CALLS]get_weather[CALL_ID]abc123456[ARGS]{"city": "Oslo", "hourly": true})";
  for (const ToolChoice choice : {ToolChoice::kRequired, ToolChoice::kAuto}) {
    const ChatPrompt prompt =
        model->apply_chat_template(messages, {.tools = kTools, .tool_choice = choice, .parallel_tool_calls = false});
    const Answer made = answer(model, prompt, 1, call);
    EXPECT_TRUE(made.text.starts_with(call)) << made.text;
    expect_calls(made);
  }
}

// Llama's calls have no mark of their own; models write them in several ways.
TEST(ChatToolsTest, BeginsOfJson) {
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  for (const char* file : {"meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct"}) {
    const auto model = family_model(file);
    const ChatPrompt prompt = model->apply_chat_template(messages, {.tools = kTools});
    for (const char* begin :
         {R"({"name":"get_weather)", R"({"type": "function", "name": "get_weather)", "{\n  \"name\": \"get_time"}) {
      SCOPED_TRACE(std::string(file) + ": " + begin);
      const Answer made = answer(model, prompt, 1, begin);
      EXPECT_TRUE(made.text.starts_with(begin)) << made.text;
      expect_calls(made);
    }
  }
}

// Text that turns out not to be a call is content, whether it comes at once or byte by byte.
TEST(ChatToolsTest, TextThatIsNoCall) {
  const auto model = family_model(kFamilies.at("Llama 3.1"));
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  const ChatPrompt prompt = model->apply_chat_template(messages, {.tools = kTools});
  const std::string long_text = "Use {x} in code. " + std::string(200, '.');
  for (const std::string& text :
       {std::string(R"({"a": 1})"), std::string("Use {x} in code. Done."), std::string("Use {"), long_text}) {
    for (const std::size_t n_bytes : {std::size_t{1}, text.size()}) {
      SCOPED_TRACE(text + ", " + std::to_string(n_bytes));
      ChatReader reader(prompt.format);
      ChatMessage streamed;
      for (std::size_t i = 0; i < text.size(); i += n_bytes) {
        for (const ChatDelta& delta : reader.add(text.substr(i, n_bytes))) put(delta, streamed);
      }
      for (const ChatDelta& delta : reader.finish()) put(delta, streamed);
      EXPECT_EQ(reader.message().content, text);
      EXPECT_EQ(streamed.content, text);
      EXPECT_TRUE(reader.message().tool_calls.empty());
    }
  }
  // A stream does not wait for the end.
  ChatReader reader(prompt.format);
  for (const char letter : long_text) reader.add(std::string(1, letter));
  EXPECT_EQ(reader.message().content, long_text);
}

// With thinking in the text, the header of a call is not.
TEST(ChatToolsTest, HeadersOfCallsAreNoContent) {
  const auto model = family_model(kFamilies.at("gpt-oss"));
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  const ChatPrompt prompt = model->apply_chat_template(messages, {.tools = kTools, .separates_thinking = false});
  ChatReader reader(prompt.format);
  ChatMessage streamed;
  for (const char* piece : {"<|channel|>", "analysis", "<|message|>", "Need it.", "<|end|>", "<|start|>", "assistant",
                            "<|channel|>", "commentary", " to=", "functions.get_time", " ", "<|constrain|>", "json",
                            "<|message|>", "{\"zone\"", ": \"UTC\"}"}) {
    for (const ChatDelta& delta : reader.add(piece)) put(delta, streamed);
  }
  for (const ChatDelta& delta : reader.finish()) put(delta, streamed);
  EXPECT_NE(streamed.content.find("Need it."), std::string::npos) << streamed.content;
  EXPECT_EQ(streamed.content.find("commentary"), std::string::npos) << streamed.content;
  ASSERT_EQ(streamed.tool_calls.size(), 1U);
  EXPECT_EQ(streamed.tool_calls[0].name, "get_time");
}

// A template that has no place for thoughts must still show the text behind them.
TEST(ChatToolsTest, TextBehindThoughtsIsShown) {
  const auto model = family_model("unsloth-mistral-Devstral-Small-2507");
  const std::vector<ChatMessage> messages = {{"user", "Weather?"},
                                             {.role = "assistant", .content = "It rains.", .reasoning = "Let me see."},
                                             {"user", "Why?"}};
  EXPECT_NE(model->apply_chat_template(messages, ChatOptions()).text.find("It rains."), std::string::npos);
}

TEST(ChatToolsTest, ThoughtsAreToldApart) {
  const auto model = family_model(kFamilies.at("Qwen3"));
  const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}};
  const ChatPrompt prompt = model->apply_chat_template(messages, ChatOptions());
  ASSERT_NE(prompt.format, nullptr);
  const std::string text = "<think>\nLet me see.\n</think>\n\nIt rains.";
  ChatReader whole(prompt.format), pieces(prompt.format);
  whole.add(text);
  whole.finish();
  EXPECT_EQ(whole.message().reasoning, "Let me see.\n");
  EXPECT_EQ(whole.message().content, "It rains.");
  ChatMessage streamed;
  for (const char letter : text) {
    for (const ChatDelta& delta : pieces.add(std::string(1, letter))) put(delta, streamed);
  }
  for (const ChatDelta& delta : pieces.finish()) put(delta, streamed);
  EXPECT_EQ(streamed.content, "It rains.");
  EXPECT_EQ(streamed.reasoning, "Let me see.\n");

  // Without thinking the prompt has an empty thought, and with separates_thinking off all text is content.
  EXPECT_NE(model->apply_chat_template(messages, {.enable_thinking = false}).text.find("<think>\n\n</think>"),
            std::string::npos);
  EXPECT_EQ(model->apply_chat_template(messages, {.separates_thinking = false}).format, nullptr);
  // Thoughts of earlier turns are not shown again.
  const std::vector<ChatMessage> later = {{"user", "Weather?"},
                                          {.role = "assistant", .content = "It rains.", .reasoning = "Let me see."},
                                          {"user", "And now?"}};
  EXPECT_EQ(model->apply_chat_template(later, ChatOptions()).text.find("Let me see.\n"), std::string::npos);
  // The text that begins a call has no effect within thoughts.
  const ChatPrompt tools = model->apply_chat_template(messages, {.tools = kTools});
  ASSERT_FALSE(tools.grammar_start.words.empty());
  const std::string& word = tools.grammar_start.words.front();
  const Answer made = answer(model, tools, 1, "<think>\nI might " + word + " or not.\n</think>\n\n" + word);
  EXPECT_NE(made.whole.reasoning.find("or not."), std::string::npos);
  expect_calls(made);
}

TEST(ChatToolsTest, AMessageThatGoesOn) {
  for (const char* family : {"Qwen3", "Llama 3.1", "Hermes 3"}) {
    SCOPED_TRACE(family);
    const auto model = family_model(kFamilies.at(family));
    const std::vector<ChatMessage> messages = {{"user", "How is the weather?"}, {"assistant", "The weather"}};
    const ChatPrompt prompt = model->apply_chat_template(messages, {.continues_last = true, .enable_thinking = false});
    EXPECT_TRUE(prompt.text.ends_with("The weather")) << prompt.text;
    ChatReader reader(prompt.format);
    std::string content;
    for (const char* piece : {" is", " fine."}) {
      for (const ChatDelta& delta : reader.add(piece)) content += delta.content;
    }
    for (const ChatDelta& delta : reader.finish()) content += delta.content;
    EXPECT_EQ(content, " is fine.");
  }
}

TEST(ChatToolsTest, LongAndDeepAnswers) {
  const auto model = family_model(kFamilies.at("Qwen3"));
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  const auto read = [&](const std::string& text) {
    ChatReader reader(model->apply_chat_template(messages, {.tools = kTools, .enable_thinking = false}).format);
    reader.add(text);
    reader.finish();
    return reader.message();
  };
  const std::string words(300'000, 'x'), brackets(300'000, '[');
  EXPECT_EQ(read(words).content, words);
  const std::string call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": ";
  EXPECT_EQ(read(call + brackets).content, call + brackets);
  // The text may also be the beginning of an answer that the client gives.
  const std::vector<ChatMessage> begun = {{"user", "Hi"}, {"assistant", call + brackets}};
  ChatReader reader(
      model->apply_chat_template(begun, {.continues_last = true, .tools = kTools, .enable_thinking = false}).format);
  reader.add("]");
  reader.finish();
}

TEST(ChatToolsTest, ArgumentsOfTheTemplate) {
  const auto model =
      Model::load(TinyModel({.chat_template = "{{ messages[0].content }} {{ mood|default('none') }}"}).path());
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  EXPECT_EQ(model->apply_chat_template(messages, {.arguments = {{"mood", "\"glad\""}}}).text, "Hi glad");
  EXPECT_EQ(model->apply_chat_template(messages, ChatOptions()).text, "Hi none");
}

// Call IDs become nine characters, whatever client they come from; the result has the ID of its call.
TEST(CallIds, AreMappedForTemplatesThatWantThemShort) {
  const auto model = family_model("mistralai-Mistral-Nemo-Instruct-2407");
  const auto text = [&](const std::string& call_id, const std::string& answer_id) {
    ChatMessage call{"assistant", ""};
    call.tool_calls.push_back({call_id, "get_time", R"({"zone":"UTC"})"});
    ChatMessage result{"tool", "12:00"};
    result.tool_call_id = answer_id;
    const std::vector<ChatMessage> messages = {{"user", "Time?"}, call, result};
    ChatOptions options;
    options.tools = kTools;
    return model->apply_chat_template(messages, options).text;
  };
  EXPECT_NE(text("abc123XYZ", "abc123XYZ").find("abc123XYZ"), std::string::npos);
  for (const std::string& id :
       {std::string("call_0123456789abcdef"), std::string(32, 'a'), std::string("1"), std::string()}) {
    const std::string made = text(id, id);
    const std::size_t at = made.find("\"id\": \"");
    ASSERT_NE(at, std::string::npos) << made;
    const std::string mapped = made.substr(at + 7, 9);
    EXPECT_NE(made.find("\"call_id\": \"" + mapped + "\""), std::string::npos) << made;
  }
}

}  // namespace
}  // namespace winnow::test
