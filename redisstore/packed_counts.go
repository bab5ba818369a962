package redisstore

import (
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/laterq/later/store"
)

// Levels of BUCKET_COUNTS and classes of buckets, see lua/_bucket_counts.lua and lua/_buckets.lua.
const (
	countLevels   = 6
	bucketClasses = 16
	blockCells    = 64
	finerCells    = 20      // of a block of level 4 and further ones, before the others
	widestBucket  = 1 << 20 // width of class 0 in ms
	narrowestCell = 4       // ms; it counts the narrowClasses together, with buckets of a millisecond
	narrowClasses = 6
)

// bucketWidth returns the width of the buckets of a class, in ms.
func bucketWidth(class int) int64 { return max(1, int64(widestBucket)>>(2*class)) }

// blocksAt returns the names of the blocks that count the messages in buckets before a time in ms.
func blocksAt(ms int64) (names []string) {
	width := int64(widestBucket) * blockCells * blockCells * blockCells
	for block := range ms / width {
		names = append(names, blockName(1, block))
	}
	for level := 1; level <= countLevels; level++ {
		names = append(names, blockName(level, ms/width))
		width /= blockCells
	}
	return names
}

func blockName(level int, number int64) string {
	return string(rune('A'+level-1)) + strconv.FormatInt(number, 10)
}

// bucketsAt returns the names of the buckets, one of each class, that may have messages due at a time in ms.
func bucketsAt(ms int64) []string {
	names := make([]string, bucketClasses)
	for class := range names {
		names[class] = string(rune('a'+class)) + strconv.FormatInt(ms/bucketWidth(class), 10)
	}
	return names
}

// packedCounts says how many packed messages are due before a time. It has the data that lua/_read_counts.lua has read
// for that time: blocks of counts, and the buckets that the time divides. The zero value has none.
type packedCounts struct {
	widest int64                              // width of a bucket of class 0 in ms
	blocks [countLevels + 1]map[int64][]int64 // by level and number: at i the sum of its first i cells
	texts  [bucketClasses]map[int64]string    // of buckets, by class and number
}

// newPackedCounts returns the counts in the reply of a script: the width of the widest buckets, and names and texts.
func newPackedCounts(reply []any) (*packedCounts, error) {
	if len(reply) == 0 {
		return &packedCounts{}, nil
	}
	p := emptyPackedCounts(reply[0].(int64))
	for i := 1; i+1 < len(reply); i += 2 {
		if err := p.add(reply[i].(string), reply[i+1].(string)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func emptyPackedCounts(widest int64) *packedCounts {
	p := &packedCounts{widest: widest}
	for level := range p.blocks {
		p.blocks[level] = map[int64][]int64{}
	}
	for class := range p.texts {
		p.texts[class] = map[int64]string{}
	}
	return p
}

// add adds the text of a block or bucket.
func (p *packedCounts) add(name, text string) error {
	number, err := strconv.ParseInt(name[1:], 10, 64)
	if err != nil {
		return fmt.Errorf("bucket %q: %w: %w", name, store.ErrCorrupt, err)
	}
	if letter := name[0]; letter >= 'a' {
		p.texts[letter-'a'][number] = text
	} else {
		p.blocks[letter-'A'+1][number] = sumCells(text)
	}
	return nil
}

// sumCells returns at i the sum of the first i counts in the text of a block. An unreadable text, which a check
// repairs, has none.
func sumCells(text string) []int64 {
	sums := make([]int64, finerCells+blockCells+1)
	if text == "" || text[0] < 1 || text[0] > 4 || (len(text)-1)%int(text[0]) != 0 {
		return sums
	}
	width, cells := int(text[0]), text[1:]
	for i := range len(sums) - 1 {
		count := int64(0)
		if at := i * width; at < len(cells) {
			for _, b := range []byte(cells[at : at+width]) {
				count = count<<8 + int64(b)
			}
		}
		sums[i+1] = sums[i] + count
	}
	return sums
}

// before returns the number of packed messages due before a time in ms. At each level it adds the counts of the cells
// before the one that contains the time, and goes on in that one.
func (p *packedCounts) before(ms int64) (n int64) {
	if p.widest == 0 || ms <= 0 {
		return 0
	}
	width := p.widest * blockCells * blockCells * blockCells
	for block := range ms / width {
		if sums := p.blocks[1][block]; sums != nil {
			n += sums[len(sums)-1]
		}
	}
	for level := 1; level <= countLevels; level++ {
		sums := p.blocks[level][ms/width]
		if sums == nil {
			return n
		}
		offset, class, cell := ms%width, 3*level-11, int64(0)
		if level > 3 {
			a, b := offset*4/width, 4+offset*16/width
			n += sums[a] + sums[b] - sums[4] + p.inBucket(class, ms) + p.inBucket(class+1, ms)
			cell = finerCells
		}
		n += sums[cell+offset*blockCells/width] - sums[cell]
		if level > 2 {
			n += p.inBucket(class+2, ms)
		}
		width /= blockCells
	}
	for class := 3*countLevels - 8; class < bucketClasses; class++ { // each a millisecond wide
		for start := ms - ms%max(1, width); start < ms; start++ {
			n += linesBefore(p.texts[class][start], 1)
		}
	}
	return n
}

// inBucket returns the number of messages due before a time in the bucket of a class that contains it.
func (p *packedCounts) inBucket(class int, ms int64) int64 {
	if class >= bucketClasses {
		return 0
	}
	width := max(1, p.widest>>(2*class))
	return linesBefore(p.texts[class][ms/width], ms%width)
}

// linesBefore counts the lines of a bucket that are due before a time, in ms after the start of the bucket.
func linesBefore(bucket string, bound int64) (n int64) {
	for offset := range offsets(bucket) {
		if offset < bound {
			n++
		}
	}
	return n
}

// earliestLine returns the lowest due time in a bucket, in ms after its start, and whether there is one.
func earliestLine(bucket string) (earliest int64, found bool) {
	for offset := range offsets(bucket) {
		if !found || offset < earliest {
			earliest, found = offset, true
		}
	}
	return earliest, found
}

// offsets iterates over the due times of the lines of a bucket, in ms after its start.
func offsets(bucket string) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for line := range strings.Lines(bucket) {
			text, _, found := strings.Cut(line, "\t")
			if offset, err := strconv.ParseInt(text, 10, 64); found && err == nil && !yield(offset) {
				return
			}
		}
	}
}
