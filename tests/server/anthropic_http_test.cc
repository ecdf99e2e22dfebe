// /v1/messages over HTTP, with Qwen3's template on a tiny model whose answers a grammar forces.
#include <nlohmann/json.hpp>
#include <sstream>

#include "server/dialects/anthropic_request.h"
#include "server/http_test_support.h"

namespace winnow::server {
namespace {

class AnthropicHttpTest : public QwenHttpTest {
 protected:
  Json ask(const Json& body, const std::string& path = "/v1/messages") { return answer_to(path, body); }
  // Returns the events of a stream and checks that each is named after its type.
  std::vector<Json> events(Json body) {
    body["stream"] = true;
    const auto answer = post("/v1/messages", body.dump());
    EXPECT_EQ(answer->status, 200) << answer->body;
    EXPECT_EQ(answer->get_header_value("Content-Type"), "text/event-stream");
    std::vector<Json> all;
    std::istringstream lines(answer->body);
    std::string name;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("event: ")) name = line.substr(7);
      if (!line.starts_with("data: ")) continue;
      all.push_back(Json::parse(line.substr(6)));
      EXPECT_EQ(all.back()["type"], name);
    }
    return all;
  }
  static Json say(const std::string& text, const std::string& grammar = R"(root ::= "so it is")") {
    return {{"model", "m"},
            {"max_tokens", 200},
            {"grammar", grammar},
            {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
  }
  static Json with_tools(const std::string& text) {
    Json body = say(text);
    body.erase("grammar");
    body["tools"] = Json::parse(R"([{"name":"weather","description":"of a city","input_schema":{"type":"object",
      "properties":{"zone":{"enum":["UTC","CET"]},"city":{"enum":["Oslo","Rome"]}},"required":["zone","city"],
      "additionalProperties":false}},{"type":"web_search_20250305","name":"web_search"}])");
    body["tool_choice"] = {{"type", "any"}, {"disable_parallel_tool_use", true}};
    return body;
  }
};

TEST_F(AnthropicHttpTest, Text) {
  start();
  const Json answer = ask(say("the hat"));
  EXPECT_EQ(answer["type"], "message");
  EXPECT_EQ(answer["role"], "assistant");
  EXPECT_EQ(answer["model"], "m");
  EXPECT_EQ(answer["content"], Json::parse(R"([{"type":"text","text":"so it is"}])"));
  EXPECT_EQ(answer["stop_reason"], "end_turn");
  EXPECT_TRUE(answer["stop_sequence"].is_null());
  EXPECT_GT(answer["usage"]["input_tokens"], 0);
  EXPECT_GT(answer["usage"]["output_tokens"], 0);
}

TEST_F(AnthropicHttpTest, WhyItEnds) {
  start();
  Json body = say("the hat");
  body["stop_sequences"] = {"zz", " it"};
  const Json stopped = ask(body);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], " it");
  EXPECT_EQ(stopped["content"][0]["text"], "so");
  body = say("the hat");
  body["max_tokens"] = 1;
  EXPECT_EQ(ask(body)["stop_reason"], "max_tokens");
}

TEST_F(AnthropicHttpTest, SystemAndBlocksAreThePrompt) {
  start();
  Json plain = say("the hat");
  plain["system"] = "Be brief.";
  Json blocks = plain;
  blocks["system"] =
      Json::parse(R"([{"type":"text","text":"Be "},{"type":"text","text":"brief.","cache_control":{}}])");
  blocks["messages"][0]["content"] = Json::parse(R"([{"type":"text","text":"the "},{"type":"text","text":"hat"}])");
  const auto count = [&](const Json& body) { return ask(body, "/v1/messages/count_tokens")["input_tokens"]; };
  EXPECT_EQ(count(plain), count(blocks));
  EXPECT_GT(count(plain), count(say("the hat")));
  const Json usage = ask(plain)["usage"];
  EXPECT_EQ(count(plain), usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());
}

TEST_F(AnthropicHttpTest, StreamOfText) {
  start();
  const std::vector<Json> all = events(say("the hat"));
  ASSERT_GE(all.size(), 6U);
  EXPECT_EQ(all[0]["type"], "message_start");
  EXPECT_EQ(all[0]["message"]["content"], Json::array());
  EXPECT_GT(all[0]["message"]["usage"]["input_tokens"], 0);
  EXPECT_EQ(all[1]["content_block"], Json::parse(R"({"type":"text","text":""})"));
  std::string text;
  for (const Json& event : all) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"];
  }
  EXPECT_EQ(text, "so it is");
  EXPECT_EQ(all[all.size() - 3]["type"], "content_block_stop");
  EXPECT_EQ(all[all.size() - 2]["delta"]["stop_reason"], "end_turn");
  EXPECT_GT(all[all.size() - 2]["usage"]["output_tokens"], 0);
  EXPECT_EQ(all.back()["type"], "message_stop");
}

TEST_F(AnthropicHttpTest, Thoughts) {
  start();
  Json body = say("a", "root ::= \"<think>\\nwhy\\n</think>\\n\\nso\"");
  body["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
  const Json content = ask(body)["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0]["type"], "thinking");
  EXPECT_EQ(content[0]["thinking"], "why\n");
  EXPECT_EQ(content[1]["text"], "so");
  std::string thoughts;
  bool has_signature = false;
  int n_blocks = 0;
  for (const Json& event : events(body)) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], n_blocks++);
    }
    if (event["type"] != "content_block_delta") continue;
    if (event["delta"]["type"] == "thinking_delta") thoughts += event["delta"]["thinking"];
    has_signature |= event["delta"]["type"] == "signature_delta";
  }
  EXPECT_EQ(thoughts, "why\n");
  EXPECT_TRUE(has_signature);
  EXPECT_EQ(n_blocks, 2);
  // The content blocks are sent back with the conversation.
  body["messages"].push_back({{"role", "assistant"}, {"content", content}});
  body["messages"].push_back({{"role", "user"}, {"content", "b"}});
  ask(body);
}

TEST_F(AnthropicHttpTest, CallAnswerCall) {
  start();
  Json body = with_tools("Weather?");
  for (int turn = 0; turn < 2; ++turn) {
    const Json answer = ask(body);
    EXPECT_EQ(answer["stop_reason"], "tool_use");
    ASSERT_EQ(answer["content"].size(), 1U);
    const Json& call = answer["content"][0];
    EXPECT_EQ(call["type"], "tool_use");
    EXPECT_EQ(call["name"], "weather");
    EXPECT_TRUE(call["input"]["city"] == "Oslo" || call["input"]["city"] == "Rome");
    EXPECT_FALSE(call["id"].get<std::string>().empty());
    body["messages"].push_back({{"role", "assistant"}, {"content", answer["content"]}});
    body["messages"].push_back(
        {{"role", "user"},
         {"content", Json::array({{{"type", "tool_result"},
                                   {"tool_use_id", call["id"]},
                                   {"content", Json::array({{{"type", "text"}, {"text", "rain"}}})}},
                                  {{"type", "text"}, {"text", "And now?"}}})}});
  }
  body["tool_choice"] = {{"type", "tool"}, {"name", "weather"}};
  std::string input;
  for (const Json& event : events(body)) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["content_block"]["input"], Json::object());
    }
    if (event["type"] == "content_block_delta") input += event["delta"]["partial_json"];
    if (event["type"] == "message_delta") {
      EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
    }
  }
  EXPECT_TRUE(Json::parse(input).contains("city"));
  // The arguments are in the order of the schema.
  EXPECT_LT(input.find("zone"), input.find("city"));
}

TEST_F(AnthropicHttpTest, SchemasHoldInTheirOrder) {
  start();
  Json body = say("a");
  body.erase("grammar");
  const std::string schema = R"({"type":"object","properties":{"z":{"const":1},"a":{"const":2}},"required":["z","a"],)"
                             R"("additionalProperties":false})";
  std::string text = body.dump();
  text.pop_back();
  const auto answer =
      post("/v1/messages", text + R"(,"output_config":{"format":{"type":"json_schema","schema":)" + schema + "}}}");
  ASSERT_EQ(answer->status, 200) << answer->body;
  const std::string said = Json::parse(answer->body)["content"][0]["text"];
  EXPECT_LT(said.find("\"z\""), said.find("\"a\""));
}

TEST_F(AnthropicHttpTest, ErrorsInItsShape) {
  start([](ServiceOptions& options) { options.access.api_keys = {"k"}; });
  const httplib::Headers key = {{"x-api-key", "k"}};
  const auto refusal = [&](const std::string& body, const httplib::Headers& headers) {
    const auto answer = post("/v1/messages", body, headers);
    const Json json = Json::parse(answer->body);
    EXPECT_EQ(json["type"], "error");
    EXPECT_GT(json["error"]["message"].get<std::string>().size(), 10U);
    return std::to_string(answer->status) + " " + json["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(refusal("{}", {}), "401 authentication_error");
  EXPECT_EQ(refusal("{}", {{"x-api-key", "wrong"}}), "401 authentication_error");
  const std::string invalid = "400 invalid_request_error";
  EXPECT_EQ(refusal("{}", key), invalid);
  EXPECT_EQ(refusal("[", key), invalid);
  for (const char* content : {R"([{"type":"image","source":{}}])", R"([7])", R"({})", R"([{"type":"tool_result"}])",
                              R"([{"type":"tool_use"}])"}) {
    EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":)" + std::string(content) + "}]}", key), invalid);
  }
  for (const char* field :
       {R"("system":7)", R"("stop_sequences":7)", R"("thinking":{"type":"odd"})", R"("tools":7)", R"("tools":[7])",
        R"("tools":[{"name":"f"}],"tool_choice":{"type":"odd"})", R"("output_format":7)", R"("max_tokens":0)",
        R"("output_config":{"format":{"type":"json_schema"}})"}) {
    EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":"a"}],)" + std::string(field) + "}", key), invalid)
        << field;
  }
  const auto stops = post("/v1/messages", R"({"messages":[{"role":"user","content":"a"}],"stop_sequences":[7]})", key);
  EXPECT_NE(stops->body.find("'stop_sequences'"), std::string::npos) << stops->body;
  EXPECT_EQ(post("/v1/messages", say("a").dump(), key)->status, 200);
}

TEST_F(AnthropicHttpTest, StreamsThatWaitSaySo) {
  start([](ServiceOptions& options) { options.ping_s = 0.01; }, {.n_parallel = 1});
  // These requests keep the last one waiting.
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) others.emplace_back([this] { post("/v1/completions", completion(1500)); });
  wait_until([this] { return batch_->statistics().requests == 4; });
  Json body = say("the hat");
  body["stream"] = true;
  const auto answer = post("/v1/messages", body.dump());
  for (std::thread& other : others) other.join();
  EXPECT_NE(answer->body.find("event: ping\ndata: {\"type\":\"ping\"}"), std::string::npos) << answer->body;
}

// An agent's conversation can continue whatever its tools have answered.
TEST_F(AnthropicHttpTest, WhatToolsAnswerIsLeftOutWhereItIsNoText) {
  const RequestBody body = translate_messages(Json::parse(R"({"messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}},
        {"type":"server_tool_use","id":"s","name":"web_search","input":{}},
        {"type":"web_search_tool_result","tool_use_id":"s","content":[]}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[
        {"type":"text","text":"seen: "},{"type":"image","source":{"type":"base64"}},
        {"type":"document","title":"Report","source":{}},{"type":"tool_reference","tool_name":"weather"}]}]}]})"));
  const std::string content = body.fields["messages"][2]["content"];
  EXPECT_EQ(content, "seen: [image: left out][document: left out] Report[tool_reference: left out] weather");
  EXPECT_EQ(body.warnings.size(), 5U);
}

}  // namespace
}  // namespace winnow::server
