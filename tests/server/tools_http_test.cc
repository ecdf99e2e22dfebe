// Tools and thinking over HTTP, with Qwen3's template on a tiny model whose answers a grammar forces.
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "server/answering.h"
#include "server/chat_fields.h"
#include "server/dialects/openai_dialect.h"
#include "server/http_test_support.h"

namespace winnow::server {
namespace {

Json tools() {
  return Json::parse(R"([{"type":"function","function":{"name":"weather","description":"of a city","strict":true,
    "parameters":{"type":"object","properties":{"zone":{"enum":["UTC","CET"]},"city":{"enum":["Oslo","Rome"]}},
                  "required":["zone","city"],"additionalProperties":false}}}])");
}

class ToolsHttpTest : public QwenHttpTest {
 protected:
  Json ask(Json body) {
    body["max_tokens"] = 200;
    return answer_to("/v1/chat/completions", body);
  }
  static Json body(const Json& messages) {
    return {{"messages", messages},
            {"tools", tools()},
            {"tool_choice", "required"},
            {"parallel_tool_calls", false},
            {"chat_template_kwargs", {{"enable_thinking", false}}}};
  }
};

// Returns the deltas of a stream's only answer, joined to a message.
Json joined(const std::string& stream) {
  Json message = {{"content", ""}, {"reasoning_content", ""}, {"name", ""}, {"arguments", ""}};
  const auto append = [&](const char* name, const Json& delta) {
    if (delta.contains(name) && delta[name].is_string()) {
      message[name] = message[name].get<std::string>() + delta[name].get<std::string>();
    }
  };
  std::istringstream lines(stream);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) continue;
    const Json delta = Json::parse(line.substr(6))["choices"][0]["delta"];
    append("content", delta);
    append("reasoning_content", delta);
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      append("name", call["function"]);
      append("arguments", call["function"]);
    }
  }
  return message;
}

TEST_F(ToolsHttpTest, CallAnswerCall) {
  start();
  Json messages = Json::parse(R"([{"role":"user","content":"Weather?"}])");
  for (int turn = 0; turn < 3; ++turn) {
    const Json answer = ask(body(messages));
    const Json& choice = answer["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(choice["message"]["content"].is_null());
    const Json& call = choice["message"]["tool_calls"][0];
    EXPECT_EQ(call["type"], "function");
    EXPECT_EQ(call["function"]["name"], "weather");
    const Json arguments = Json::parse(call["function"]["arguments"].get<std::string>());
    EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome");
    messages.push_back(choice["message"]);
    messages.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "rain"}});
  }
}

TEST_F(ToolsHttpTest, OneNamedFunction) {
  start();
  Json request = body(Json::parse(R"([{"role":"user","content":"Weather?"}])"));
  Json other = tools()[0];
  other["function"]["name"] = "time";
  request["tools"].push_back(other);
  request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "time"}}}};
  EXPECT_EQ(ask(request)["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "time");
  // The function is called once unless the request says otherwise, since a model may go on calling it to the end.
  const auto parallel = [&] { return parse_chat(Fields(request), false).options.parallel_tool_calls; };
  request.erase("parallel_tool_calls");
  EXPECT_EQ(parallel(), false);
  request["parallel_tool_calls"] = true;
  EXPECT_EQ(parallel(), true);
  request.erase("parallel_tool_calls");
  request["tool_choice"] = "required";
  EXPECT_EQ(parallel(), std::nullopt);
}

TEST_F(ToolsHttpTest, AllowedTools) {
  start();
  Json request = body(Json::parse(R"([{"role":"user","content":"Weather?"}])"));
  Json other = tools()[0];
  other["function"]["name"] = "time";
  request["tools"].push_back(other);
  request["tool_choice"] = Json::parse(R"({"type":"allowed_tools","allowed_tools":{"mode":"required",
      "tools":[{"type":"function","function":{"name":"time"}}]}})");
  EXPECT_EQ(ask(request)["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "time");
  request["tool_choice"] = {{"type", "function"}, {"name", "time"}};  // as in OpenAI's responses
  EXPECT_EQ(ask(request)["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "time");
  for (const auto& [choice, param] : std::vector<std::pair<const char*, const char*>>{
           {R"({"type":"custom","custom":{"name":"time"}})", "tool_choice.type"},
           {R"({"type":"allowed_tools"})", "tool_choice.allowed_tools"},
           {R"({"type":"allowed_tools","allowed_tools":{"mode":"odd"}})", "tool_choice.allowed_tools.mode"},
           {R"({"type":"allowed_tools","allowed_tools":{"tools":[7]}})", "tool_choice.allowed_tools.tools"}}) {
    request["tool_choice"] = Json::parse(choice);
    const auto answer = post("/v1/chat/completions", request.dump());
    EXPECT_EQ(answer->status, 400) << choice;
    EXPECT_EQ(Json::parse(answer->body)["error"]["param"], param) << answer->body;
  }
}

TEST_F(ToolsHttpTest, CallsInAStream) {
  start();
  Json request = body(Json::parse(R"([{"role":"developer","content":"Be brief."},{"role":"user","content":"Rain?"}])"));
  const std::string whole = ask(request)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
  request["stream"] = true;
  request["max_tokens"] = 200;
  const auto answer = post("/v1/chat/completions", request.dump());
  ASSERT_EQ(answer->status, 200) << answer->body;
  std::string arguments, name, reason;
  int n_deltas = 0;
  std::istringstream lines(answer->body);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) continue;
    const Json choice = Json::parse(line.substr(6))["choices"][0];
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    for (const Json& call : choice["delta"].value("tool_calls", Json::array())) {
      EXPECT_EQ(call["index"], 0);
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
      ++n_deltas;
    }
  }
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(arguments, whole);
  EXPECT_EQ(reason, "tool_calls");
  EXPECT_GT(n_deltas, 2);  // the arguments come in pieces, larger ones where the writer of the stream lags behind
}

TEST_F(ToolsHttpTest, ThoughtsApart) {
  start();
  const Json request = {{"messages", Json::parse(R"([{"role":"user","content":"a"}])")},
                        {"grammar", "root ::= \"<think>\\nwhy\\n</think>\\n\\nso\""},
                        {"chat_template_kwargs", {{"enable_thinking", true}}}};
  const Json message = ask(request)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "why\n");
  EXPECT_EQ(message["content"], "so");
  Json plain = request;
  plain["reasoning_format"] = "none";
  EXPECT_EQ(ask(plain)["choices"][0]["message"]["content"], "<think>\nwhy\n</think>\n\nso");
}

// The client has the beginning of the answer, so neither a stream nor a whole answer repeats it.
TEST_F(ToolsHttpTest, TheBeginningOfAnAnswerIsNotRepeated) {
  start();
  const auto begun = [](const Json& message, const std::string& grammar) {
    return Json{{"messages", Json::array({{{"role", "user"}, {"content", "Rain?"}}, message})}, {"grammar", grammar}};
  };
  const Json text = begun({{"role", "assistant"}, {"content", "It is"}}, R"(root ::= " so it is")");
  Json with_tools = text;
  with_tools["tools"] = tools();
  with_tools["tool_choice"] = "none";
  const Json thought = begun({{"role", "assistant"}, {"content", ""}, {"reasoning_content", "I think"}},
                             "root ::= \" so\\n</think>\\n\\nyes\"");
  // A call that was begun comes whole, since its rest alone has no name.
  Json call = body(Json::array({{{"role", "user"}, {"content", "Rain?"}},
                                {{"role", "assistant"}, {"content", "<tool_call>\n{\"name\": \"weather\", \"argum"}}}));
  // A call that has to come follows the text.
  Json call_after_text = call;
  call_after_text["messages"][1]["content"] = "It is";
  for (const auto& [request, content, thoughts] :
       std::vector<std::tuple<Json, std::string, std::string>>{{text, " so it is", ""},
                                                               {with_tools, " so it is", ""},
                                                               {thought, "yes", " so\n"},
                                                               {call, "", ""},
                                                               {call_after_text, "", ""}}) {
    const Json message = ask(request)["choices"][0]["message"];
    const Json whole = message["content"].is_null() ? "" : message["content"];
    Json streamed = request;
    streamed["stream"] = true;
    streamed["max_tokens"] = 200;
    const Json all = joined(post("/v1/chat/completions", streamed.dump())->body);
    EXPECT_EQ(all["content"], whole) << request;
    EXPECT_EQ(all["reasoning_content"], message.value("reasoning_content", "")) << request;
    if (request.contains("grammar")) {
      EXPECT_EQ(whole, content) << request;
      EXPECT_EQ(message.value("reasoning_content", ""), thoughts) << request;
    } else {
      EXPECT_EQ(whole.get<std::string>().find_first_not_of(" \n"), std::string::npos) << whole;
    }
    EXPECT_EQ(message.contains("tool_calls"), !request.contains("grammar")) << message;
    if (!message.contains("tool_calls")) continue;
    const Json& function = message["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "weather");
    EXPECT_EQ(all["name"], function["name"]);
    EXPECT_EQ(all["arguments"], function["arguments"]);
  }
}

// The text so far is parsed again for each delta, so a stream that has fallen behind sends fewer and longer ones.
TEST_F(ToolsHttpTest, AStreamCatchesUp) {
  start();
  const Json request = {{"messages", Json::parse(R"([{"role":"user","content":"a"}])")},
                        {"grammar", "root ::= \"<think>\\nwhy\\n</think>\\n\\n\" \"a\"{800}"},
                        {"chat_template_kwargs", {{"enable_thinking", true}}},
                        {"max_tokens", 1200},
                        {"stream", true}};
  auto answering = std::make_shared<Answering>();
  answering->dialect = std::make_unique<OpenAiDialect>(Endpoint::kChat, "tiny");
  answering->request = answering->dialect->parse(request, *model_, {});
  ASSERT_NE(answering->request.format, nullptr);
  answering->reader = std::make_unique<AnswerReader>(answering->request);
  answering->generation = std::make_unique<Generation>(*batch_, answering->request, 1);
  answering->deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  answering->on_done = [](const BatchResult&) {};
  wait_until([&] { return answering->generation->is_done(); });
  httplib::Response response;
  answer_as_stream(answering, response);
  std::string stream;
  int n_writes = 0;
  bool is_over = false;
  httplib::DataSink sink;
  sink.write = [&](const char* data, std::size_t n_bytes) {
    stream.append(data, n_bytes);
    ++n_writes;
    return true;
  };
  sink.done = [&] { is_over = true; };
  while (!is_over && response.content_provider_(0, 0, sink)) {
  }
  EXPECT_EQ(joined(stream)["content"], std::string(800, 'a'));
  EXPECT_LT(n_writes, 200);
}

// Such requests are answered or refused without delaying others; the test's own time limit is the bound.
TEST_F(ToolsHttpTest, HostileSchemasEnd) {
  start();
  const auto status = [&](const Json& parameters) {
    Json request = body(Json::parse(R"([{"role":"user","content":"a"}])"));
    request["tools"][0]["function"]["parameters"] = parameters;
    request["max_tokens"] = 1;
    const auto begin = std::chrono::steady_clock::now();
    const auto answer = post("/v1/chat/completions", request.dump());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(answer && (answer->status == 200 || answer->status == 400));
    RecordProperty("seconds", std::to_string(took.count()));
    if (took.count() > 1) std::printf("%.1f s\n", took.count());
    return answer ? answer->status : 0;
  };
  Json many = {{"enum", Json::array()}};
  for (int i = 0; i < 5000; ++i) many["enum"].push_back("value " + std::to_string(i));
  status({{"type", "object"}, {"properties", {{"x", many}}}});
  Json nested = {{"type", "string"}};
  for (int i = 0; i < 12; ++i) nested = {{"type", "array"}, {"items", nested}, {"minItems", 1000}, {"maxItems", 1024}};
  status({{"type", "object"}, {"properties", {{"x", nested}}}});
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 3000; ++i) wide["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  EXPECT_EQ(status(wide), 400);
  Json many_calls = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 200; ++i) many_calls["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  Json all = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 12; ++i) all["properties"]["q" + std::to_string(i)] = many_calls;
  status(all);
  status({{"$ref", "#/$defs/a"}, {"$defs", {{"a", {{"$ref", "#/$defs/a"}}}}}});
  status({{"type", "object"},
          {"properties", {{"x", {{"type", "string"}, {"pattern", "^((((a{1,99}){1,99}){1,99}){1,99})$"}}}}}});
  status({{"type", "object"}, {"properties", {{std::string(200, 'n'), {{"type", "string"}}}}}});
  // The schema is joined with itself and doubles at every level.
  Json doubled = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 40; ++i) {
    const Json next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    doubled["$defs"]["d" + std::to_string(i)] = {{"allOf", {next, next}}};
  }
  doubled["$defs"]["d40"] = {{"type", "object"}};
  EXPECT_EQ(status(doubled), 400);
  status({{"type", "object"}, {"properties", {{"x", {{"type", "string"}, {"pattern", "^(?=(a|b)*a(a|b){40}$)"}}}}}});
}

// The text that a template adds to the messages is counted before it is tokenised.
TEST_F(ToolsHttpTest, LongCallsAndThoughtsDoNotFit) {
  start();
  const std::string large(std::size_t{1} << 20, 'x');
  const Json user = {{"role", "user"}, {"content", "Rain?"}};
  const Json result = {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "yes"}};
  const auto chat = [&](const std::string& thoughts, const std::string& city) {
    const Json function = {{"name", "weather"}, {"arguments", R"({"city":")" + city + "\"}"}};
    const Json call = {{"id", "1"}, {"type", "function"}, {"function", function}};
    const Json caller = {{"role", "assistant"}, {"reasoning_content", thoughts}, {"tool_calls", Json::array({call})}};
    return body(Json::array({user, caller, result}));
  };
  Json described = body(Json::array({user}));
  described["tools"][0]["function"]["description"] = large;
  for (const Json& request : {chat("why", large), chat(large, "Oslo"), described}) {
    const auto answer = post("/v1/chat/completions", request.dump());
    EXPECT_EQ(answer->status, 400);
    const Json error = Json::parse(answer->body)["error"];
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_NE(error["message"].get<std::string>().find("bytes, too many for the context"), std::string::npos) << error;
  }
}

// Tools of real clients have large bounds, long names, or any JSON as a schema. Errors name the tool.
TEST_F(ToolsHttpTest, ToolsOfTheWild) {
  start();
  Json request = body(Json::parse(R"([{"role":"user","content":"a"}])"));
  Json& function = request["tools"][0]["function"];
  const std::string name(128, 'n');
  function["name"] = name;
  for (
      const char* parameters :
      {R"({"type":"object","properties":{"x":{"const":1},"script":{"type":"string","maxLength":524288}},"required":["x"],)"
       R"("maxProperties":1})",
       R"({"type":"object","properties":{"x":true},"maxProperties":0})"}) {
    function["parameters"] = Json::parse(parameters);
    const Json call = ask(request)["choices"][0]["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(call["name"], name);
    EXPECT_TRUE(Json::parse(call["arguments"].get<std::string>()).is_object());
  }
  for (const Json& any : {Json(true), Json::object(), Json()}) {
    function["parameters"] = any;
    request["max_tokens"] = 1;
    EXPECT_EQ(post("/v1/chat/completions", request.dump())->status, 200) << any;
  }
  function["parameters"] = Json::parse(R"({"type":"object","properties":{"unit":{"type":"string","enum":[]}}})");
  const auto answer = post("/v1/chat/completions", request.dump());
  EXPECT_EQ(answer->status, 400);
  EXPECT_NE(answer->body.find("'enum'"), std::string::npos) << answer->body;
  EXPECT_NE(answer->body.find("parameters.unit"), std::string::npos) << answer->body;
  EXPECT_NE(answer->body.find(name), std::string::npos) << answer->body;
  function["name"] = name + "n";
  EXPECT_EQ(post("/v1/chat/completions", request.dump())->status, 400);
}

}  // namespace
}  // namespace winnow::server
