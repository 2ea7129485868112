// Where a CPU has no instruction for it that we know: the caches it is. pixel_loops.cpp includes this.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] SHOAL_LOOP inline

SHOAL_LOOP_BODY void put_past_caches(void* out, const void* bytes, std::size_t size) { std::memcpy(out, bytes, size); }
SHOAL_LOOP_BODY void settle_body() {}

#undef SHOAL_LOOP_BODY
