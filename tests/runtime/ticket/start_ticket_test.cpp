#include <shoal/internal/runtime/ticket/start_ticket.h>

#include <shoal/ipc/error.h>

#include "tests/support/catch.h"

namespace shoal {
namespace {

TEST_CASE("start ticket: what is written is read") {
  StartTicket ticket{.parent = {.pid = 4711, .tag = 0x80001003, .memory = 3, .liveness = 4, .lifeline = 12},
                     .requests = 7,
                     .fork_server = 99,
                     .served = -1,
                     .spares = 2,
                     .freeze = 0,
                     .blocks = {{{0x123456789abc}, 5}, {{0x56789abc}, 6}}};
  const std::string argument = ticket.to_argument();
  CHECK_THAT(argument, StartsWith("--shoal-child="));
  const auto read = StartTicket::from_argument(argument);
  REQUIRE(read);
  CHECK(read->role == ticket.role);
  CHECK(argument == "--shoal-child=4711,2147487747,3,4,12,7,99,-1,2,0,20015998343868,5,1450744508,6");
  CHECK(read->parent.pid == ticket.parent.pid);
  CHECK(read->parent.tag == ticket.parent.tag);
  CHECK(read->parent.memory == ticket.parent.memory);
  CHECK(read->parent.liveness == ticket.parent.liveness);
  CHECK(read->requests == ticket.requests);
  CHECK(read->fork_server == ticket.fork_server);
  CHECK(read->served == ticket.served);
  CHECK(read->spares == ticket.spares);
  CHECK(read->freeze == ticket.freeze);
  CHECK(read->parent.lifeline == ticket.parent.lifeline);
  CHECK(read->blocks.channel.block == ticket.blocks.channel.block);
  CHECK(read->blocks.channel.word == ticket.blocks.channel.word);
  CHECK(read->blocks.crash_record.block == ticket.blocks.crash_record.block);
  CHECK(read->blocks.crash_record.word == ticket.blocks.crash_record.word);
  ticket.role = StartTicket::Role::kForkServer;
  CHECK(StartTicket::from_argument(ticket.to_argument())->role == StartTicket::Role::kForkServer);
}

TEST_CASE("start ticket: a user's arguments are none") {
  CHECK_FALSE(StartTicket::from_argument("--epochs"));
  CHECK_FALSE(StartTicket::from_argument(""));
  CHECK_FALSE(StartTicket::from_argument("--shoal-child"));
}

TEST_CASE("start ticket: a broken one is refused") {
  const std::string good = StartTicket{}.to_argument();
  CHECK_THROWS_AS(StartTicket::from_argument("--shoal-child="), Error);
  CHECK_THROWS_AS(StartTicket::from_argument("--shoal-child=1,2,three"), Error);
  CHECK_THROWS_AS(StartTicket::from_argument(good + ",1"), Error);
  CHECK_THROWS_AS(StartTicket::from_argument(good + ","), Error);
  CHECK_THROWS_AS(StartTicket::from_argument("--shoal-child= " + good.substr(good.find('=') + 1)), Error);
  CHECK_THROWS_WITH(StartTicket::from_argument(good.substr(0, good.size() - 2)), ContainsSubstring("--shoal-child="));
}

}  // namespace
}  // namespace shoal
