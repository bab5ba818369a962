package remote

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"github.com/laterq/later/store"
)

// A program understands the versions of the protocol from minVersion to maxVersion. Any change of sent data raises
// maxVersion, a new field too: an older program would execute the call and then fail to read the reply, so that claimed
// messages would lose attempts. Both sides name their versions before the first call, and refuse each other if no
// version is common to them.
const (
	minVersion = 3
	maxVersion = 3

	// MediaType is the type of bodies. It names the version.
	MediaType = mediaTypes + "3"

	mediaTypes     = "application/vnd.later.store.v"
	versionsHeader = "Later-Store-Versions"
)

// versions are the versions of the protocol that a program understands.
type versions struct{ min, max int }

var ourVersions = versions{minVersion, maxVersion}

func (v versions) String() string {
	if v.min == v.max {
		return strconv.Itoa(v.min)
	}
	return fmt.Sprintf("%d-%d", v.min, v.max)
}

// overlaps reports whether a version is common to both.
func (v versions) overlaps(other versions) bool { return v.min <= other.max && other.min <= v.max }

// versionsOf returns the versions that a program has said in the header. Programs of version 2 have only the media
// type, and quote theirs in the text of a refusal.
func versionsOf(h http.Header, text string) (v versions, ok bool) {
	if n, _ := fmt.Sscanf(h.Get(versionsHeader), "%d-%d", &v.min, &v.max); n > 0 {
		if n == 1 {
			v.max = v.min
		}
		return v, true
	}
	for _, text := range []string{h.Get("Content-Type"), text} {
		if found := inMediaType.FindStringSubmatch(text); found != nil {
			n, _ := strconv.Atoi(found[1])
			return versions{n, n}, true
		}
	}
	return versions{}, false
}

var inMediaType = regexp.MustCompile(`later\.store\.v([0-9]{1,4})`)

const versionAdvice = "use the same version of Later on both sides: upgrade the older program, or stop it"

// hasOurVersion reports whether a client that wants to connect understands a version that this program does.
func hasOurVersion(r *http.Request) bool {
	theirs, ok := versionsOf(r.Header, "")
	return ok && theirs.overlaps(ourVersions)
}

// refuseVersion answers a client of another version, before a call is executed.
func refuseVersion(w http.ResponseWriter, r *http.Request) {
	text := "bodies have the type " + MediaType
	if theirs, ok := versionsOf(r.Header, ""); ok {
		text = fmt.Sprintf("this server speaks version %v of the store protocol and the client version %v: %s",
			ourVersions, theirs, versionAdvice)
	}
	w.Header().Set(versionsHeader, ourVersions.String())
	http.Error(w, text, http.StatusUnsupportedMediaType)
}

// otherVersion returns the error of a server that has refused this program's version.
func otherVersion(h http.Header, text []byte, err error) error {
	speaks := "another one"
	if theirs, ok := versionsOf(h, string(text)); ok {
		speaks = "version " + theirs.String()
	}
	return fmt.Errorf("%w: this program speaks version %v of the store protocol and the server %s: %s: %w",
		store.ErrUnsupported, ourVersions, speaks, versionAdvice, err)
}
