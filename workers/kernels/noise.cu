// Normally distributed grain: Philox4x32-10 (Salmon et al., 2011) gives a 16-bit number for every
// colour sample, and the number the quantile that is added.

constexpr int QUANTILE_GROUP = 64, QUANTILE_GROUPS = 65536 / QUANTILE_GROUP, MOST_STEPS = 1120;

// Quantiles are whole and rise: `first` holds the numbers at which they rise by one. Of 64 numbers
// at a time, `groups` holds the first one's quantile in the upper half, how many of them have one
// more at bit 10, so that adding a number there carries, and at bit 0 whether they rise more often.
struct Noise {
    u32 key[2];
    int lowest;  // the quantile of number 0
    u32 steps;   // of `first`
    int groups[QUANTILE_GROUPS];
    u16 first[MOST_STEPS];
};

struct Grain {
    const int* groups;
    const u32* first;  // the last one is beyond all numbers
    int lowest;

    __device__ __forceinline__ int group(u32 number) const { return groups[number / QUANTILE_GROUP]; }

    // The noisy level, in the third byte, by the number's group.
    __device__ __forceinline__ u32 operator()(u32 level, u32 number, int grain) const
    {
        if (grain & 1) {
            int risen = (grain >> 16) - lowest;
            while (number >= first[risen]) ++risen;
            grain = (lowest + risen) * 65536;
        }
        int noisy = grain + (int)(level << 16) + (int)(number % QUANTILE_GROUP << 10);
        return max(min(noisy, 0xFFFFFF), 0);
    }
};

// The four words of a counter.
__device__ __forceinline__ void philox(u32 counter, const u32* key, u32* words)
{
    u32 a = counter, b = 0, c = 0, d = 0;
#pragma unroll
    for (u32 step = 0; step < 10; ++step) {
        u64 first = (u64)a * 0xD2511F53u, second = (u64)c * 0xCD9E8D57u;
        a = (u32)(second >> 32) ^ b ^ (key[0] + step * 0x9E3779B9u), b = (u32)second;
        c = (u32)(first >> 32) ^ d ^ (key[1] + step * 0xBB67AE85u), d = (u32)first;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

// The 16-bit number of a colour sample: apart, for it is rarely needed alone.
static __device__ __noinline__ u32 number_of(u32 sample, const u32* key)
{
    u32 words[4];
    philox(sample / 8, key, words);
    u32 pair = sample % 8 / 2;
    u32 word = pair < 2 ? (pair ? words[1] : words[0]) : pair == 2 ? words[2] : words[3];
    return word >> sample % 2 * 16 & 0xFFFF;
}

// Sixteen samples a thread and turn: two counters, whose middle is where those of alpha begin.
template <int C>
__device__ __forceinline__ void noisy_line(
    const Item& item, int block, const u32* key, const Grain& grain)
{
    u32 total = samples_of(item), end = min(total, (block + 1) * LINE);
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    for (u32 at = block * LINE + 16 * threadIdx.x; at < end; at += 16 * THREADS) {
        u32 colour = C == 4 ? at / 4 * 3 : at;
        if (at + 16 > total) {
            for (u32 s = at; s < total; ++s) {
                bool alpha = C == 4 && s % 4 == 3;
                u32 colour_sample = C == 4 ? s / 4 * 3 + s % 4 : s;
                u32 number = number_of(colour_sample, key);
                dst[s] = alpha ? src[s] : (u8)(grain(src[s], number, grain.group(number)) >> 16);
            }
            continue;
        }
        u32 words[4], numbers[8];
        load16(src + at, words);
        philox(colour / 8, key, numbers);
        philox(colour / 8 + 1, key, numbers + 4);
        if (C == 4 && colour % 8)
#pragma unroll
            for (int i = 0; i < 6; ++i) numbers[i] = numbers[i + 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            constexpr int COLOURS = C == 4 ? 3 : 4;
            u32 number[COLOURS], bytes[4] = {0, 0, 0, words[i] >> 24 << 16};
            int group[COLOURS];
#pragma unroll
            for (int k = 0; k < COLOURS; ++k) {
                int s = COLOURS * i + k;
                number[k] = numbers[s / 2] >> s % 2 * 16 & 0xFFFF;
                group[k] = grain.group(number[k]);
            }
#pragma unroll
            for (int k = 0; k < COLOURS; ++k) bytes[k] = grain(byte_of(words[i], k), number[k], group[k]);
            u32 low = __byte_perm(bytes[0], bytes[1], 0x0062), high = __byte_perm(bytes[2], bytes[3], 0x0062);
            words[i] = __byte_perm(low, high, 0x5410);
        }
        store16(dst + at, words);
    }
}

extern "C" __global__ void __launch_bounds__(256)
noise(const Item* items, const u32* starts, int n)
{
    __shared__ int groups[QUANTILE_GROUPS];
    __shared__ u32 first[MOST_STEPS + 1];
    int block;
    Item item = owner(items, starts, n, block);
    const Noise& of = *global<const Noise>(item.data);
    for (int i = threadIdx.x; i < QUANTILE_GROUPS; i += THREADS) groups[i] = of.groups[i];
    for (int i = threadIdx.x; i <= (int)of.steps; i += THREADS)
        first[i] = i < (int)of.steps ? of.first[i] : 65536;
    __syncthreads();
    Grain grain = {groups, first, of.lowest};
    u32 key[2] = {of.key[0], of.key[1]};
    if (item.channels == 1) noisy_line<1>(item, block, key, grain);
    else if (item.channels == 3) noisy_line<3>(item, block, key, grain);
    else noisy_line<4>(item, block, key, grain);
}
