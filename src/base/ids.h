// Ids instead of pointers into tables.
#pragma once

#include <cstdint>

namespace quern {

enum class RequestId : uint64_t {};
enum class RowId : int32_t {};      // a sequence's permanent place on the device
enum class PageId : int32_t {};     // a page of one KV group
enum class ClientId : uint64_t {};  // who asks: requests of equal client share their part of the machine

constexpr auto index(RequestId id) { return static_cast<uint64_t>(id); }
constexpr auto index(RowId id) { return static_cast<int32_t>(id); }
constexpr auto index(PageId id) { return static_cast<int32_t>(id); }
constexpr auto index(ClientId id) { return static_cast<uint64_t>(id); }

}  // namespace quern
