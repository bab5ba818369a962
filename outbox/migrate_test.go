package outbox

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/laterq/later"
)

func TestMigrateIsSafeUnderRaces(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		dsn, box := k.newDSN(t), New(k.dialect)
		ctx := bounded(t)
		var all sync.WaitGroup
		for range 8 {
			db := k.open(t, dsn)
			all.Go(func() {
				for range 2 {
					if err := box.Migrate(ctx, db); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		db := k.open(t, dsn)
		var versions int
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM later_outbox_migrations").Scan(&versions); err != nil {
			t.Fatal(err)
		}
		if versions != 1 {
			t.Errorf("%d versions are recorded; want 1", versions)
		}
		commit(t, box, db, "q", later.Outgoing{})
		wantRows(t, box, db, 1)
	})
}

func TestMigrateKeepsRows(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		commit(t, box, db, "q", later.Outgoing{})
		for range 2 {
			if err := box.Migrate(bounded(t), db); err != nil {
				t.Fatal(err)
			}
		}
		wantRows(t, box, db, 1)
	})
}

func TestMigrateRefusesTablesOfAnotherVersion(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		if _, err := db.ExecContext(bounded(t), box.fillIn("UPDATE {versions} SET version = 1")); err != nil {
			t.Fatal(err)
		}
		wantError(t, "Migrate", box.Migrate(bounded(t), db), later.ErrUnsupported, "version 1",
			"drop later_outbox and later_outbox_migrations, and try again")
		if _, err := db.ExecContext(bounded(t), box.recordVersion(99)); err != nil {
			t.Fatal(err)
		}
		wantError(t, "Migrate", box.Migrate(bounded(t), db), later.ErrUnsupported, "version 99", "update the program")
		if err := db.PingContext(bounded(t)); err != nil { // its connection is in order
			t.Error(err)
		}
	})
}

func TestSchemaIsWhatMigrateCreates(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		db, box := k.open(t, k.newDSN(t)), New(k.dialect, Table("by_hand"))
		schema, err := box.Schema()
		if err != nil {
			t.Fatal(err)
		}
		for statement := range strings.SplitSeq(strings.TrimSpace(schema), ";\n") {
			if _, err := db.ExecContext(bounded(t), strings.TrimSuffix(statement, ";")); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		if err := box.Migrate(bounded(t), db); err != nil {
			t.Error(err)
		}
		commit(t, box, db, "q", later.Outgoing{})
		wantRows(t, box, db, 1)
	})
}

func TestMigrateAfterACrashBetweenItsStatements(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		db, box := k.open(t, k.newDSN(t)), New(k.dialect)
		for _, statement := range []string{versionTable, tables[k.dialect]} {
			if _, err := db.ExecContext(bounded(t), box.fillIn(statement)); err != nil {
				t.Fatal(err)
			}
		}
		if err := box.Migrate(bounded(t), db); err != nil {
			t.Error(err)
		}
		commit(t, box, db, "q", later.Outgoing{})
	})
}

func TestTablesInASchemaOfTheirOwn(t *testing.T) {
	db := kinds[0].open(t, kinds[0].newDSN(t))
	if _, err := db.ExecContext(bounded(t), "CREATE SCHEMA shop"); err != nil {
		t.Fatal(err)
	}
	box := New(PostgreSQL, Table("shop.outbox"))
	if err := errors.Join(box.Migrate(bounded(t), db), box.Migrate(bounded(t), db)); err != nil {
		t.Fatal(err)
	}
	commit(t, box, db, "q", later.Outgoing{})
	client := memory(t)
	flush(t, box.Relay(db, client, RelayConfig{}))
	receive(t, client.Queue("q"), 1)
}
