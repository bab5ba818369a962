package redisstore

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestURLSetsOptions(t *testing.T) {
	for _, test := range []struct {
		url  string
		want func(u *parsedURL)
	}{
		{"redis://localhost", func(u *parsedURL) {
			u.Options.Addrs = []string{"localhost:6379"}
		}},
		{"redis://localhost/", func(u *parsedURL) {
			u.Options.Addrs = []string{"localhost:6379"}
		}},
		{"redis://me:p%40ss%2Fw%3Ard+%23@h.example:7000/3", func(u *parsedURL) {
			u.Options.Addrs = []string{"h.example:7000"}
			u.Options.Username, u.Options.Password, u.Options.DB = "me", "p@ss/w:rd+#", 3
		}},
		{"redis://:a:b@h", func(u *parsedURL) {
			u.Options.Addrs, u.Options.Password = []string{"h:6379"}, "a:b"
		}},
		{"redis://[::1]:7000?db=15", func(u *parsedURL) {
			u.Options.Addrs, u.Options.DB = []string{"[::1]:7000"}, 15
		}},
		{"redis://[fe80::1%25eth0]", func(u *parsedURL) {
			u.Options.Addrs = []string{"[fe80::1%eth0]:6379"}
		}},
		{"redis://h?prefix=shop%3A&client_name=a.b&pool_size=7&dial_timeout=1s&read_timeout=2s&" +
			"write_timeout=3m&eviction=allow&retry=0s",
			func(u *parsedURL) {
				u.Options.Addrs, u.Options.ClientName, u.Options.PoolSize = []string{"h:6379"}, "a.b", 7
				u.Options.DialTimeout, u.Options.ReadTimeout, u.Options.WriteTimeout = time.Second, 2*time.Second,
					3*time.Minute
				u.Prefix, u.AllowEviction, u.RetryFor = "shop:", true, 0
			}},
		{"rediss://h", func(u *parsedURL) {
			u.Options.Addrs, u.tls = []string{"h:6379"}, &tlsSettings{}
		}},
		{"rediss://h?tls_ca=/a&tls_cert=/b&tls_key=/c&tls_server_name=x&tls_insecure=true", func(u *parsedURL) {
			u.Options.Addrs = []string{"h:6379"}
			u.tls = &tlsSettings{ca: "/a", cert: "/b", key: "/c", serverName: "x", insecure: true}
		}},
		{"rediss://h?tls_insecure=false", func(u *parsedURL) {
			u.Options.Addrs, u.tls = []string{"h:6379"}, &tlsSettings{}
		}},
		{"unix:///run/a%20b.sock", func(u *parsedURL) {
			u.Options.Addrs = []string{"/run/a b.sock"}
		}},
		{"unix://me:pass@/run/redis.sock?db=2", func(u *parsedURL) {
			u.Options.Addrs, u.Options.DB = []string{"/run/redis.sock"}, 2
			u.Options.Username, u.Options.Password = "me", "pass"
		}},
		{"redis+sentinel://me:pass@a,b:1,[::1]/primary/4?sentinel_username=s&sentinel_password=t+%3D",
			func(u *parsedURL) {
				u.Options.Addrs, u.Options.MasterName = []string{"a:26379", "b:1", "[::1]:26379"}, "primary"
				u.Options.Username, u.Options.Password, u.Options.DB = "me", "pass", 4
				u.Options.SentinelUsername, u.Options.SentinelPassword = "s", "t+="
			}},
		{"rediss+sentinel://a/primary?db=1", func(u *parsedURL) {
			u.Options.Addrs, u.Options.MasterName, u.Options.DB = []string{"a:26379"}, "primary", 1
			u.tls = &tlsSettings{}
		}},
		{"redis+cluster://:pass@a,b:7001", func(u *parsedURL) {
			u.Options.Addrs, u.Options.Password = []string{"a:6379", "b:7001"}, "pass"
		}},
		{"rediss+cluster://a/0", func(u *parsedURL) {
			u.Options.Addrs, u.tls = []string{"a:6379"}, &tlsSettings{}
		}},
	} {
		name, _, _ := strings.Cut(test.url, "://")
		want := parsedURL{
			Prefix: "later:", RetryFor: DefaultRetry, scheme: schemes[name], Options: engineOptions(schemes[name].form),
		}
		test.want(&want)
		got, err := parseURL(test.url)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v, %v\nwant %+v", test.url, got, err, want)
		}
	}
}

func TestBadURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, test := range []struct{ url, says string }{
		{"", "rediss+cluster"},
		{"localhost:6379", "redis://user:password@localhost"},
		{"http://me:secret@h", "schemes redis,"},
		{"redis://", "host 1 of the store URL is missing"},
		{"redis:///0", "is missing"},
		{"redis://:6379", "is missing"},
		{"redis://me:secret@", "is missing"},
		{"redis+cluster://a,,b", "host 2 of the store URL is missing"},
		{"redis://a,b", "redis+cluster://"},
		{"redis://a b", "no name or address"},
		{"redis://a:", "1 to 65535"},
		{"redis://a:0", "1 to 65535"},
		{"redis://a:65536", "1 to 65535"},
		{"redis://::1", "is missing"},
		{"redis://fe80::1", "needs brackets"},
		{"redis://[::1", "no IPv6 address"},
		{"redis://[1.2.3.4]", "no IPv6 address"},
		{"redis://[::1]x", "after its bracket"},
		{"redis://me@h", "user without a password"},
		{"redis://me:%zz@h", "%25"},
		{"redis://me:secret@a,me:secret@b", "more than one @"},
		{"redis://me:sec/ret@h", "%40"},
		{"redis://me:sec?ret@h", "%40"},
		{"redis://me:sec#ret@h", "%23"},
		{"redis://h/x", `"x"`},
		{"redis://h/-1", `"-1"`},
		{"redis://h/0/1", `"0/1"`},
		{"redis://h/1?db=1", "db twice"},
		{"redis://h?db=1&db=1", "db twice"},
		{"redis://h?db=", "db no value"},
		{"redis://h?db", "db no value"},
		{"redis://h?", "without a name"},
		{"redis://h?db=1&", "without a name"},
		{"redis://h?password=secret", `"password": known are client_name, db,`},
		{"redis://h?DB=1", `unknown parameter "DB"`},
		{"redis://h?prefix=a%7Bb", "brace"},
		{"redis://h?prefix=a%00", "control"},
		{"redis://h?prefix=%ff", "UTF-8"},
		{"redis://h?prefix=%g", "%25"},
		{"redis://h?prefix=" + strings.Repeat("p", 65), "limit is 64"},
		{"redis://h?client_name=a%20b", "without a space"},
		{"redis://h?pool_size=0", "1 to 100000"},
		{"redis://h?pool_size=many", "1 to 100000"},
		{"redis://h?read_timeout=5", "1ms to 1h"},
		{"redis://h?retry=-1s", "0s (not at all) to 1h"},
		{"redis://h?dial_timeout=-1s", "1ms to 1h"},
		{"redis://h?write_timeout=2h", "1ms to 1h"},
		{"redis://h?eviction=no", "give allow"},
		{"redis://h?tls_ca=/a", "rediss://"},
		{"rediss://h?tls_cert=/a", "give both"},
		{"rediss://h?tls_insecure=yes", "true or false"},
		{"redis://h?sentinel_password=secret", "redis+sentinel://"},
		{"redis+sentinel://h/p?sentinel_password=%sec%ret", "%25"},
		{"redis+sentinel://h/p?sentinel_username=s", "give both"},
		{"redis+sentinel://h", "lacks the Sentinels' name"},
		{"redis+sentinel://h/?db=1", "lacks the Sentinels' name"},
		{"redis+sentinel://h/p/x", `"x"`},
		{"redis+cluster://h/1", "only 0"},
		{"redis+cluster://h?db=1", "only 0"},
		{"unix://", "path of a socket"},
		{"unix:///", "path of a socket"},
		{"unix://me:secret@h/run/redis.sock", "has a host"},
		{"unix://me:sec/ret@/run/redis.sock", "has a host"},
		{"redis://" + strings.Repeat("h", 8192), "limit is 8192"},
	} {
		_, err := parseURL(test.url)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s\ngave %v\nwant an ErrInvalid that says %q", test.url, err, test.says)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "ret@") {
			t.Errorf("%s\nerror contains the password: %v", test.url, err)
		}
	}
}

// engineOptions returns the options that no URL changes.
func engineOptions(f form) redis.UniversalOptions {
	u, err := parseURL(map[form]string{
		formSingle: "redis://h", formSocket: "unix:///s", formSentinel: "redis+sentinel://h/m",
		formCluster: "redis+cluster://h",
	}[f])
	if err != nil {
		panic(err)
	}
	u.Options.Addrs, u.Options.MasterName = nil, ""
	return u.Options
}

// connect pings the server of a URL and returns its CLIENT INFO.
func connect(t *testing.T, raw string) string {
	t.Helper()
	u, err := parseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	rdb, err := u.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rdb.Close() })
	info, err := rdb.Do(t.Context(), "CLIENT", "INFO").Text()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func wantInfo(t *testing.T, info string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !slices.Contains(strings.Fields(info), part) {
			t.Errorf("CLIENT INFO lacks %q: %s", part, info)
		}
	}
}

func TestURLOpensAServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Args("--unixsocket", "redis.sock"))
	// The user may run only the commands that a connection needs.
	const password = "p@ss/w:rd ?#%+"
	err := s.Client(t).ACLSetUser(t.Context(), "narrow", "on", ">"+password, "-@all",
		"+hello", "+select", "+client|setname", "+client|info").Err()
	if err != nil {
		t.Fatal(err)
	}
	user := "narrow:" + escape(password)
	wantInfo(t, connect(t, s.URL()), "user=default", "db=0", "name=later", "resp=3")
	wantInfo(t, connect(t, "redis://"+user+"@"+s.Addr()+"/3?client_name=shop"), "user=narrow", "db=3", "name=shop")
	wantInfo(t, connect(t, "unix://"+user+"@"+filepath.Join(s.Dir(), "redis.sock")+"?db=4"), "user=narrow", "db=4")
}

func TestURLOpensAServerOverTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.TLS(t))
	wantInfo(t, connect(t, s.URL()), "user=default")
	wantInfo(t, connect(t, strings.Replace(s.URL(), "tls_ca=", "tls_insecure=true&tls_ca=", 1)), "user=default")

	u, err := parseURL(s.URL() + "&tls_server_name=another.example")
	if err != nil {
		t.Fatal(err)
	}
	rdb, err := u.client()
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	if err := rdb.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "another.example") {
		t.Errorf("a certificate for another name: %v", err)
	}
}

func TestURLOpensAClusterAndSentinel(t *testing.T) {
	t.Parallel()
	wantInfo(t, connect(t, redistest.StartCluster(t).URL()), "user=default", "name=later")
	wantInfo(t, connect(t, redistest.StartSentinel(t).URL()), "user=default", "name=later")
}

func TestBadTLSFilesAreRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"tls_ca=/no/such/file", "tls_ca=" + empty,
		"tls_cert=" + empty + "&tls_key=" + empty} {
		u, err := parseURL("rediss://h?" + query)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(query, "=")
		if _, err := u.client(); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// FuzzParseURL checks that no input panics, that an accepted URL keeps its meaning when it is formatted again, and
// that a rejected one returns ErrInvalid without the password, the text before the last @.
func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{
		"redis://me:hunter2@localhost:6379/1?prefix=a:&client_name=x&pool_size=5&read_timeout=1s&eviction=allow",
		"rediss://:hunter2@[fe80::1%25eth0]:1?tls_ca=/a&tls_cert=/b&tls_key=/c&tls_server_name=x&tls_insecure=true",
		"unix://me:hunter2@/run/a%20b.sock?db=1",
		"redis+sentinel://me:hunter2@a,b:1/primary/2?sentinel_username=u&sentinel_password=p%26",
		"redis+cluster://me:hunter2@a,[::1]:7000/0?dial_timeout=1m&write_timeout=5ms",
		"redis://me:hunter2/x@h?", "redis://hunter2?x@h", "redis://me:hunter2#@h", "redis://me:%hunter2@h", "://@",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > maxURL/4 {
			t.Skip("written anew it may be over the limit: a byte can become three")
		}
		u, err := parseURL(raw)
		if err != nil {
			secret := raw[:strings.LastIndex(raw, "@")+1]
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: error is not ErrInvalid: %v", raw, err)
			}
			if strings.Contains(secret, "hunter2") && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q: error contains the password: %v", raw, err)
			}
			return
		}
		again, err := parseURL(format(u))
		if err != nil || !reflect.DeepEqual(u, again) {
			t.Errorf("%q written anew is %q:\n got %+v, %v\nwant %+v", raw, format(u), again, err, u)
		}
	})
}

// format returns a URL that describes u.
func format(u parsedURL) string {
	var b strings.Builder
	for name, s := range schemes {
		if s == u.scheme {
			b.WriteString(name + "://")
		}
	}
	o := u.Options
	if o.Password != "" {
		b.WriteString(escape(o.Username) + ":" + escape(o.Password) + "@")
	}
	if u.scheme.form == formSocket {
		b.WriteString(strings.ReplaceAll(escape(o.Addrs[0]), "%2F", "/"))
	} else {
		b.WriteString(strings.ReplaceAll(strings.Join(o.Addrs, ","), "%", "%25"))
	}
	if u.scheme.form == formSentinel {
		b.WriteString("/" + escape(o.MasterName))
	}
	separator := "?"
	add := func(name, value string) {
		if value != "" {
			b.WriteString(separator + name + "=" + escape(value))
			separator = "&"
		}
	}
	addIf := func(given bool, name, value string) {
		if given {
			add(name, value)
		}
	}
	add("db", strconv.Itoa(o.DB))
	add("prefix", u.Prefix)
	add("client_name", o.ClientName)
	addIf(o.PoolSize != 0, "pool_size", strconv.Itoa(o.PoolSize))
	addIf(o.DialTimeout != 0, "dial_timeout", o.DialTimeout.String())
	addIf(o.ReadTimeout != 0, "read_timeout", o.ReadTimeout.String())
	addIf(o.WriteTimeout != 0, "write_timeout", o.WriteTimeout.String())
	add("sentinel_username", o.SentinelUsername)
	add("sentinel_password", o.SentinelPassword)
	addIf(u.AllowEviction, "eviction", "allow")
	add("retry", u.RetryFor.String())
	if u.tls != nil {
		add("tls_ca", u.tls.ca)
		add("tls_cert", u.tls.cert)
		add("tls_key", u.tls.key)
		add("tls_server_name", u.tls.serverName)
		addIf(u.tls.insecure, "tls_insecure", "true")
	}
	return b.String()
}

// escape percent-encodes every character that is special anywhere in a URL.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func TestOpenClientConnectsToTheServerOfAURL(t *testing.T) {
	server := redistest.Shared(t)
	rdb, err := OpenClient(server.URL() + "?prefix=x:")
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if _, err := OpenClient("redis://"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a URL without a host: %v", err)
	}
}
